// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine_devices.h"

#include <algorithm>
#include <utility>

#include "kernels/builtin.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/io/system_memory.h"

namespace dsv4 {
namespace {

// Kernels of one image, so that ranks differ in nothing that they compute with.
bool AlikeForRanks(const DeviceTraits& a, const DeviceTraits& b) {
  return a.compute_capability == b.compute_capability && a.features == b.features;
}

// Tables by which every entry with knobs runs its config of that number, modulo their count.
std::vector<TuningTable> TablesOfConfig(int32_t number, KernelSet set) {
  std::vector<TuningTable> tables;
  for (const Manifest& manifest : BuiltinManifests(set)) {
    for (const KernelEntry& entry : manifest) {
      const absl::Span<const KernelConfig> configs = entry.knobs.configs;
      if (configs.empty()) continue;
      tables.push_back({&entry, configs[static_cast<size_t>(number) % configs.size()]});
    }
  }
  return tables;
}

// The tables of a set: those of the first one for the entries that are the same in both.
std::vector<TuningTable> TablesOfSet(std::vector<TuningTable> tables, KernelSet set) {
  if (set == KernelSet::kFirst) return tables;
  std::vector<TuningTable> kept;
  for (const Manifest& manifest : BuiltinManifests(set)) {
    for (const KernelEntry& entry : manifest) {
      for (const TuningTable& table : tables) {
        if (absl::string_view(table.entry->name) != entry.name) continue;
        kept.push_back(table);
        kept.back().entry = &entry;
      }
    }
  }
  return kept;
}

bool IsOfFirstSet(const KernelEntry& entry) {
  const absl::Span<const Manifest> manifests = BuiltinManifests();
  return std::any_of(manifests.begin(), manifests.end(), [&](const Manifest& manifest) {
    return std::any_of(manifest.begin(), manifest.end(), [&](const KernelEntry& first) {
      return absl::string_view(first.name) == entry.name;
    });
  });
}

std::string Describe(const Device& device) {
  return absl::StrCat("cuda:", device.index(), " (", device.name(), ", ",
                      ComputeCapabilityName(device.traits().compute_capability), ")");
}

}  // namespace

absl::StatusOr<EngineDevices> EngineDevices::Open(const EngineSettings& settings) {
  EngineDevices devices;
  devices.first_rank_ = settings.first_rank();
  DSV4_RETURN_IF_ERROR(devices.OpenRanks(settings));
  DSV4_RETURN_IF_ERROR(devices.ChooseKernels(settings));
  return devices;
}

// Ranks on the CPU have one thread each at least.
absl::Status EngineDevices::OpenRanks(const EngineSettings& settings) {
  const EngineOptions& options = settings.options;
  const bool cuda = options.backend == Backend::kCuda;
  const int threads = options.threads == 0 ? UsableCores() : options.threads;
  const int local = options.group.grouped() ? 1 : settings.ranks();
  for (int rank = 0; rank < local; ++rank) {
    DeviceOptions device{.kind = cuda ? DeviceKind::kCuda : DeviceKind::kCpu,
                         .threads = options.threads,
                         .pages_memory = PinnableMemory(options.system_root).has_value()};
    if (!options.devices.empty() && (cuda || local == 1)) {
      device.index = options.devices[static_cast<size_t>(rank)];
    }
    DSV4_RETURN_IF_ERROR(Device::Check(device));
    if (local > 1) {
      device.threads = std::max(threads * (rank + 1) / local - threads * rank / local, 1);
    }
    DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, Device::Open(device));
    if (rank > 0 && !AlikeForRanks(front().traits(), opened->traits())) {
      return WithArgument(Unsupported("option devices: ", Describe(front()), " and ",
                                      Describe(*opened), " are of different architectures"),
                          "devices");
    }
    devices_.push_back(std::move(opened));
  }
  return absl::OkStatus();
}

absl::Status EngineDevices::ChooseKernels(const EngineSettings& settings) {
  const EngineOptions& options = settings.options;
  for (const std::unique_ptr<Device>& device : devices_) {
    const DeviceTraits traits = device->traits();
    DSV4_ASSIGN_OR_RETURN(
        std::vector<TuningTable> tables,
        TablesOf(traits, settings.tuning_files, BuiltinTuningFiles(), BuiltinManifests()));
    tables = TablesOfSet(std::move(tables), options.kernel_set);
    if (options.config_number >= 0) {
      tables = TablesOfConfig(options.config_number, options.kernel_set);
    }
    if (options.backend == Backend::kCuda) {
      Log(LogLevel::kInfo, "tuning tables of ", tables.size(), " kernels for ", device->name(),
          ", ", ComputeCapabilityName(traits.compute_capability), " with ", traits.multiprocessors,
          " multiprocessors");
    }
    dispatches_.push_back(std::make_unique<Dispatch>(BuiltinManifests(options.kernel_set),
                                                     options.backend, options.numerics, traits,
                                                     std::move(tables)));
  }
  return absl::OkStatus();
}

std::vector<Device*> EngineDevices::pointers() const {
  std::vector<Device*> pointers;
  for (const std::unique_ptr<Device>& device : devices_) pointers.push_back(device.get());
  return pointers;
}

std::vector<std::string> EngineDevices::second_set_operators() const {
  std::vector<std::string> names;
  for (int32_t op = 0; op < static_cast<int32_t>(Op::kCount); ++op) {
    const KernelEntry* const entry = front_dispatch().chosen(static_cast<Op>(op));
    if (entry != nullptr && !IsOfFirstSet(*entry)) names.emplace_back(OpName(entry->op));
  }
  return names;
}

int EngineDevices::threads() const {
  int threads = 0;
  for (const std::unique_ptr<Device>& device : devices_) threads += device->threads();
  return threads;
}

}  // namespace dsv4
