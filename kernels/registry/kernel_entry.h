// SPDX-License-Identifier: Apache-2.0
// One implementation of one operator, as a plain constant: who it is, what it supports, what it
// needs, how to launch it. A backend lists its entries in an explicit manifest; nothing registers
// itself.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/op.h"

namespace dsv4 {

enum class Backend : int32_t { kReference, kCpu, kCuda };

const char* BackendName(Backend backend);  // "reference", "cpu", "cuda"

constexpr uint32_t NumericsBit(Numerics numerics) { return 1u << static_cast<int32_t>(numerics); }

struct KernelEntry {
  const char* name;  // "<backend>.<operator>[.<variant>]"
  Op op;
  Backend backend;
  uint32_t numerics;  // NumericsBit set
  // Whether it can run calls of this shape; a reason otherwise. Pointers in the Params may be null.
  absl::Status (*supports)(const void* params);
  // Scratch of a launch of at most this shape on a stream of `threads`; 64-byte aligned.
  int64_t (*workspace_bytes)(const void* params, int threads);
  void (*launch)(const LaunchContext& context, const void* params);
  int32_t rev;  // raised when configs or bits change
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

// The entry of typed functions: MakeEntry<P, &LaunchX, &SupportsX, &WorkspaceX>("cpu.x", ...).
template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          absl::Status (*Supports)(const Params&) = &SupportsAll<Params>,
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>>
constexpr KernelEntry MakeEntry(const char* name, Backend backend, uint32_t numerics, int32_t rev) {
  return {
      name,
      Params::kOp,
      backend,
      numerics,
      [](const void* p) { return Supports(*static_cast<const Params*>(p)); },
      [](const void* p, int threads) { return Workspace(*static_cast<const Params*>(p), threads); },
      [](const LaunchContext& context, const void* p) {
        Launch(context, *static_cast<const Params*>(p));
      },
      rev};
}

}  // namespace dsv4
