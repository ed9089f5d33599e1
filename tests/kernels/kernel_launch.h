// SPDX-License-Identifier: Apache-2.0
// Runs one kernel of a manifest on given Params, with a workspace of exactly the size that the
// entry asks for, filled with NaNs, and a guard behind it.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/registry/kernel_entry.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {

struct LaunchOptions {
  Numerics numerics = Numerics::kExact;
  uint64_t omitted_points = 0;
  int threads = 1;
};

inline void LaunchEntry(const KernelEntry& entry, const void* params,
                        const LaunchOptions& options) {
  constexpr size_t kGuardBytes = 64;
  const auto bytes = static_cast<size_t>(entry.workspace_bytes(params, options.threads));
  std::vector<std::byte> memory(64 + bytes + kGuardBytes, std::byte{0xff});
  CpuStream stream(options.threads);
  LaunchContext context;
  context.stream = &stream;
  context.numerics = options.numerics;
  context.omitted_points = options.omitted_points;
  context.workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  entry.launch(context, params);
  INFO(entry.name << " wrote behind its workspace of " << bytes << " bytes");
  const std::vector<std::byte> guard(context.workspace + bytes,
                                     context.workspace + bytes + kGuardBytes);
  REQUIRE((guard == std::vector<std::byte>(kGuardBytes, std::byte{0xff})));
}

template <class Params>
void LaunchKernel(const Manifest& manifest, const Params& params, const LaunchOptions& options) {
  REQUIRE_OK(Validate(params));
  for (const KernelEntry& entry : manifest) {
    if (entry.op == Params::kOp) return LaunchEntry(entry, &params, options);
  }
  FAIL("no kernel for " << OpName(Params::kOp));
}

}  // namespace dsv4::test
