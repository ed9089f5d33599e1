// SPDX-License-Identifier: Apache-2.0
// One implementation of one operator, as a plain constant: its name, the calls that it supports,
// its requirements on the device, its knobs and its launch function. A backend lists its entries in
// an explicit manifest; nothing registers itself.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/host_rows.h"
#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"
#include "lib/device/device_traits.h"

namespace dsv4 {

enum class Backend : int32_t { kReference, kCpu, kCuda };

const char* BackendName(Backend backend);  // "reference", "cpu", "cuda"

constexpr uint32_t NumericsBit(Numerics numerics) { return 1u << static_cast<int32_t>(numerics); }

// The knobs that tuning tables may set, and the allowed combinations of values. The first one is
// the default. Empty: no knobs. Values for work that the whole device shares are per
// multiprocessor.
struct KernelKnobs {
  absl::Span<const char* const> names{};     // at most kMaxKnobs
  absl::Span<const KernelConfig> configs{};  // distinct; values beyond the names are 0
};

struct KernelEntry {
  const char* name;  // "<backend>.<operator>[.<variant>]"
  Op op;
  Backend backend;
  uint32_t numerics;  // set of NumericsBit
  // OK if it can run calls of this shape, else the reason. Pointers in the Params may be null.
  absl::Status (*supports)(const void* params);
  // Bytes of workspace for launches of at most this shape with any config. `workers`: threads of a
  // cpu stream, multiprocessors of a GPU.
  int64_t (*workspace_bytes)(const void* params, int workers);
  void (*launch)(const LaunchContext& context, const void* params);
  CallDims (*dims)(const void* params);  // null params: names only
  int32_t rev;                           // increased when configs or bits change
  DeviceNeeds needs{};
  KernelKnobs knobs{};
  LaunchTensors (*tensors)(const void* params, Device& device) = nullptr;  // TensorsOf
};

class LaunchProgram;

// What a backend exports: its kernels, in order of priority, and how it stores rows.
struct Manifest {
  absl::Span<const KernelEntry> entries;
  HostRows rows{};
  // Where several launches can be one: for such launches (launch_program.h).
  std::unique_ptr<LaunchProgram> (*make_program)() = nullptr;

  auto begin() const { return entries.begin(); }
  auto end() const { return entries.end(); }
};

template <class Params>
absl::Status SupportsAll(const Params&) {
  return absl::OkStatus();
}
template <class Params>
int64_t NoWorkspace(const Params&, int) {
  return 0;
}

// The config that a launch runs with.
inline const KernelConfig& ConfigOf(const LaunchContext& context,
                                    absl::Span<const KernelConfig> configs) {
  return context.config != nullptr ? *context.config : configs[0];
}

// An entry from typed functions: MakeEntry<P, &LaunchX, &SupportsX, &WorkspaceX>("cpu.x", ...).
template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          absl::Status (*Supports)(const Params&) = &SupportsAll<Params>,
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>>
constexpr KernelEntry MakeEntry(const char* name, Backend backend, uint32_t numerics, int32_t rev,
                                const DeviceNeeds& needs = {}, const KernelKnobs& knobs = {}) {
  return {
      name,
      Params::kOp,
      backend,
      numerics,
      [](const void* p) { return Supports(*static_cast<const Params*>(p)); },
      [](const void* p, int workers) { return Workspace(*static_cast<const Params*>(p), workers); },
      [](const LaunchContext& context, const void* p) {
        Launch(context, *static_cast<const Params*>(p));
      },
      [](const void* p) {
        return p == nullptr ? DimsOf(Params{}) : DimsOf(*static_cast<const Params*>(p));
      },
      rev,
      needs,
      knobs,
      [](const void* p, Device& device) {
        return TensorsOf(*static_cast<const Params*>(p), device);
      }};
}

}  // namespace dsv4
