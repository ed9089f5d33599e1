// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/device_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/clock.h"
#include "kernels/builtin.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/nccl.h"
#include "lib/dist/rank_threads.h"
#include "lib/proof/device_proof.h"
#include "lib/proof/known_answers.h"
#include "tools/verify/command_line.h"
#include "tools/verify/gpu_state.h"

namespace dsv4 {
namespace {

constexpr OptionSpec kOptions[] = {{"--backend"}, {"--devices"},    {"--threads"},
                                   {"--write"},   {"--tuning-dir"}, {"--rows"}};
constexpr int64_t kMostCopyBytes = int64_t{1} << 30, kTransferBytes = int64_t{256} << 20;
constexpr double kBusySeconds = 0.4;  // so long a device copies before its clocks are read
constexpr int64_t kExchangedBytes[] = {16384, int64_t{1} << 20};
constexpr int kExchanges = 200;
constexpr int32_t kMostRows = 4096;

template <class... Args>
void Line(const char* name, const absl::FormatSpec<Args...>& format, const Args&... args) {
  std::printf("%-11s %s\n", name, absl::StrFormat(format, args...).c_str());
  std::fflush(stdout);
}

int32_t MostConfigs() {
  size_t most = 0;
  for (const Manifest& manifest : BuiltinManifests()) {
    for (const KernelEntry& entry : manifest) most = std::max(most, entry.knobs.configs.size());
  }
  return static_cast<int32_t>(most);
}

// The operators with each config of their kernels, from the tuning tables' on.
absl::Status ReportProof(ProofOptions options) {
  const int32_t configs = options.backend == Backend::kCuda ? MostConfigs() : 0;
  for (options.config = -1; options.config < configs; ++options.config) {
    if (InterruptedBySignal()) return Cancelled("interrupted");
    DSV4_ASSIGN_OR_RETURN(const DeviceProof proof, ProveDevices(options));
    if (options.config >= 0) continue;
    for (const auto& [name, flips] : proof.flips) {
      Line("operator", "%-28s %s (%s)", name, flips.Describe(), flips.shape);
    }
    Line("long", "%d rows give the bits of short passes in %d outputs", options.long_rows,
         proof.long_launches);
    Line("proof", "%.0f ms", proof.seconds * 1e3);
  }
  if (configs > 0) Line("configs", "the same with %d configs of the kernels", configs);
  if (options.devices.size() > 1) {
    Line("exchange", "%d devices give the bits of one", options.devices.size());
  }
  return absl::OkStatus();
}

// The known answers with the second set of kernels, which engines run if the first does not give
// them: see `first`, which is returned.
absl::Status ReportSecondSet(ProofOptions options, absl::Status first) {
  if (options.backend != Backend::kCuda || (!first.ok() && !IsUnsupported(first))) return first;
  options.kernel_set = KernelSet::kSecond;
  const absl::StatusOr<DeviceProof> proof = ProveDevices(options);
  if (!proof.ok() && first.ok()) return proof.status();
  Line("second set", "%s",
       !proof.ok()  ? std::string(proof.status().message())
       : first.ok() ? "gives the known answers, too"
                    : "gives the known answers: engines run it");
  return first;
}

// Copies of `bytes`, back and forth on the device, until the host has seen `kBusySeconds` of them;
// `while_busy` is called in the middle.
absl::StatusOr<DeviceTiming> KeepBusy(Device& device, int64_t* copied,
                                      absl::FunctionRef<void()> while_busy) {
  int64_t bytes = kMostCopyBytes;
  if (const auto free = device.FreeBytes()) bytes = std::min(bytes, *free / 4);
  DSV4_ASSIGN_OR_RETURN(const Buffer memory, device.Allocate(2 * bytes, "copies"));
  absl::Status status;
  const auto copy = [&] {
    if (status.ok()) status = device.Copy(memory.data() + bytes, memory.data(), bytes);
  };
  copy();
  DSV4_RETURN_IF_ERROR(device.Synchronize());
  DeviceTiming timing;
  for (int copies = 1; timing.host_seconds < kBusySeconds; copies *= 2) {
    const Clock::time_point start = Clock::now();
    const bool last = SecondsSince(start) + 2 * timing.host_seconds >= kBusySeconds;
    timing.device_seconds = device.SecondsOf([&] {
      for (int i = 0; i < copies; ++i) copy();
      if (last) while_busy();
    });
    timing.host_seconds = SecondsSince(start);
    *copied = copies * bytes;
    DSV4_RETURN_IF_ERROR(status);
    DSV4_RETURN_IF_ERROR(device.Synchronize());
  }
  return timing;
}

absl::StatusOr<double> TransferBytesPerSecond(Device& device, bool to_device) {
  DSV4_ASSIGN_OR_RETURN(const Buffer host, device.AllocateHost(kTransferBytes, "transfers"));
  DSV4_ASSIGN_OR_RETURN(const Buffer there, device.Allocate(kTransferBytes, "transfers"));
  std::byte* const to = to_device ? there.data() : host.data();
  const std::byte* const from = to_device ? host.data() : there.data();
  double seconds = 0;
  for (int run = 0; run < 2; ++run) {  // the first one is warmer than it was
    const Clock::time_point start = Clock::now();
    DSV4_RETURN_IF_ERROR(device.Copy(to, from, kTransferBytes));
    DSV4_RETURN_IF_ERROR(device.Synchronize());
    seconds = SecondsSince(start);
  }
  return static_cast<double>(kTransferBytes) / seconds;
}

// Prints what is known of a GPU, and adds what is wrong with it.
absl::Status ReportDevice(int32_t index, std::vector<std::string>* findings) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                        Device::Open({.kind = DeviceKind::kCuda, .index = index}));
  const DeviceTraits traits = device->traits();
  Line("device", "cuda:%d %s, %s, %d multiprocessors, bus %s", index, device->name(),
       ComputeCapabilityName(traits.compute_capability), traits.multiprocessors, device->bus_id());
  absl::StatusOr<GpuState> state = Unsupported("not asked");
  int64_t copied = 0;
  DSV4_ASSIGN_OR_RETURN(const DeviceTiming timing, KeepBusy(*device, &copied, [&] {
                          state = ReadGpuState(device->bus_id());
                        }));
  if (state.ok()) {
    Line("driver", "%s, CUDA %d.%d", state->driver, state->cuda_version / 1000,
         state->cuda_version % 1000 / 10);
    Line("clocks", "SM %d of %d MHz, memory %d of %d MHz, %d C, %.0f of %.0f W, while busy",
         state->sm_mhz, state->most_sm_mhz, state->memory_mhz, state->most_memory_mhz,
         state->celsius, state->watts, state->most_watts);
    Line("throttled", "%s", ThrottleReasons(state->throttle_reasons));
    Line("memory", "%d MiB, %d uncorrected errors", state->memory_bytes >> 20,
         state->uncorrected_errors);
  } else {
    Line("driver", "unknown: %s", std::string(state.status().message()));
  }
  for (const std::string& finding : GpuFindings(state.ok() ? &*state : nullptr, timing)) {
    findings->push_back(absl::StrCat("cuda:", index, ": ", finding));
  }
  DSV4_ASSIGN_OR_RETURN(const double up, TransferBytesPerSecond(*device, true));
  DSV4_ASSIGN_OR_RETURN(const double down, TransferBytesPerSecond(*device, false));
  // A copy reads and writes.
  Line("bandwidth", "%.0f GB/s copying, %.1f GB/s from the host, %.1f GB/s to it",
       2e-9 * static_cast<double>(copied) / timing.device_seconds, 1e-9 * up, 1e-9 * down);
  return absl::OkStatus();
}

absl::Status ReportExchange(const std::vector<int32_t>& indices) {
  const auto count = static_cast<int>(indices.size());
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Dispatch>> dispatches;
  std::vector<Buffer> slices, wholes;
  std::vector<DeviceRank> ranks;
  const int64_t most = *std::max_element(std::begin(kExchangedBytes), std::end(kExchangedBytes));
  for (const int32_t index : indices) {
    DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                          Device::Open({.kind = DeviceKind::kCuda, .index = index}));
    dispatches.push_back(std::make_unique<Dispatch>(BuiltinManifests(), Backend::kCuda,
                                                    Numerics::kPublished, device->traits()));
    DSV4_ASSIGN_OR_RETURN(Buffer slice, device->Allocate(2 * most, "slices"));
    DSV4_ASSIGN_OR_RETURN(Buffer whole, device->Allocate(most, "whole"));
    ranks.push_back({device.get(), dispatches.back().get()});
    slices.push_back(std::move(slice));
    wholes.push_back(std::move(whole));
    devices.push_back(std::move(device));
  }
  DSV4_ASSIGN_OR_RETURN(const DeviceCommunicators connected,
                        ConnectDevices(ranks, ExchangePath::kAuto));
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<RankThreads> threads, RankThreads::Start(count));
  const auto of = [](auto& all, int r) -> auto& { return all[static_cast<size_t>(r)]; };
  DSV4_RETURN_IF_ERROR(threads->Run([&](int r) { return of(connected.ranks, r)->Start(); }));
  for (const int64_t bytes : kExchangedBytes) {
    ColumnShares shares;
    std::fill_n(shares.widths.begin(), indices.size(), bytes / count / 16 * 16);
    const auto exchange = [&](int r, int times) -> absl::Status {
      for (int i = 0; i < times; ++i) {
        DSV4_RETURN_IF_ERROR(of(connected.ranks, r)
                                 ->AllGather({.rows = 1,
                                              .shares = shares,
                                              .slice = of(slices, r).data() + i % 2 * most,
                                              .whole = of(wholes, r).data()}));
      }
      return of(connected.ranks, r)->Synchronize();
    };
    DSV4_RETURN_IF_ERROR(threads->Run([&](int r) { return exchange(r, 2); }));
    const Clock::time_point start = Clock::now();
    DSV4_RETURN_IF_ERROR(threads->Run([&](int r) { return exchange(r, kExchanges); }));
    Line("exchange", "%.1f us for %d bytes, %s", SecondsSince(start) / kExchanges * 1e6, bytes,
         connected.ways->Describe());
  }
  return absl::OkStatus();
}

absl::Status Report(const ProofOptions& options, std::vector<std::string>* findings) {
  if (options.backend == Backend::kCuda) {
    const std::vector<int32_t> first = {0};
    for (const int32_t index : options.devices.empty() ? first : options.devices) {
      DSV4_RETURN_IF_ERROR(ReportDevice(index, findings));
    }
    const absl::StatusOr<const Nccl*> nccl = Nccl::Load();
    Line("NCCL", "%s", nccl.ok() ? (*nccl)->version() : std::string(nccl.status().message()));
    if (options.devices.size() > 1) DSV4_RETURN_IF_ERROR(ReportExchange(options.devices));
  }
  return ReportSecondSet(options, ReportProof(options));
}

absl::Status WriteKnownAnswers(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::vector<LaunchRecord> launches, RecordKnownAnswers());
  const std::string bytes = EncodeKnownAnswers(launches);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return IoError(path, ": cannot be written");
  std::printf("%s: %zu launches, %zu bytes\n", path.c_str(), launches.size(), bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<ProofOptions> ReadOptions(const Arguments& parsed) {
  ProofOptions options;
  DSV4_RETURN_IF_ERROR(ReadDevices(parsed, "cuda", &options));
  options.tuning_dir = parsed.Get("--tuning-dir", "");
  DSV4_RETURN_IF_ERROR(parsed.Number<int32_t>("--rows", 1, kMostRows, &options.long_rows));
  return options;
}

}  // namespace

int RunDeviceCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, kOptions, 0);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  const absl::StatusOr<ProofOptions> options = ReadOptions(*parsed);
  if (!options.ok()) return ReportUsage(options.status());
  CatchSignals();
  if (parsed->Has("--write")) {
    const absl::Status written = WriteKnownAnswers(parsed->Get("--write", ""));
    return written.ok() ? kExitPassed : ReportError(written);
  }
  std::vector<std::string> findings;
  const absl::Status status = Report(*options, &findings);
  if (IsUnsupported(status)) {
    findings.emplace_back(status.message());
  } else if (!status.ok()) {
    return ReportError(status);
  }
  for (const std::string& finding : findings) std::printf("FAILED: %s\n", finding.c_str());
  std::printf("%s\n", findings.empty() ? "passed" : "failed");
  return findings.empty() ? kExitPassed : kExitFailed;
}

}  // namespace dsv4
