// SPDX-License-Identifier: Apache-2.0
// One implementation of one operator, as a plain constant: who it is, what it supports, what it
// needs of a device, which knobs it has, how to launch it. A backend lists its entries in an
// explicit manifest; nothing registers itself.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/op.h"
#include "lib/device/device_traits.h"

namespace dsv4 {

enum class Backend : int32_t { kReference, kCpu, kCuda };

const char* BackendName(Backend backend);  // "reference", "cpu", "cuda"

constexpr uint32_t NumericsBit(Numerics numerics) { return 1u << static_cast<int32_t>(numerics); }

// The knobs that tuning tables may set, and the values that they may give them together: the first
// is what runs where no table says otherwise. Empty: there is nothing to choose. A value that
// stands for work that the whole device shares is given per multiprocessor.
struct KernelKnobs {
  absl::Span<const char* const> names{};     // at most kMaxKnobs
  absl::Span<const KernelConfig> configs{};  // none twice; values beyond the names are 0
};

struct KernelEntry {
  const char* name;  // "<backend>.<operator>[.<variant>]"
  Op op;
  Backend backend;
  uint32_t numerics;  // NumericsBit set
  // Whether it can run calls of this shape; a reason otherwise. Pointers in the Params may be null.
  absl::Status (*supports)(const void* params);
  // Scratch of a launch of at most this shape, whichever config it runs with, on so many workers:
  // threads of a cpu's stream, multiprocessors of a GPU; 64-byte aligned.
  int64_t (*workspace_bytes)(const void* params, int workers);
  void (*launch)(const LaunchContext& context, const void* params);
  CallDims (*dims)(const void* params);  // of no call in particular where it is null
  int32_t rev;                           // raised when configs or bits change
  DeviceNeeds needs{};
  KernelKnobs knobs{};
};

using Manifest = absl::Span<const KernelEntry>;

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

// The entry of typed functions: MakeEntry<P, &LaunchX, &SupportsX, &WorkspaceX>("cpu.x", ...).
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
      knobs};
}

}  // namespace dsv4
