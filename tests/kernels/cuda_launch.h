// SPDX-License-Identifier: Apache-2.0
// Runs kernels of the CUDA backend on device memory, with a workspace of exactly the size that the
// entry asks for, poisoned, between guards.
#pragma once

#include "kernels/registry/kernel_entry.h"
#include "kernels/sm12x/manifest.h"
#include "lib/device/cuda_stream.h"
#include "tests/kernels/cuda_config.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

// Launches every entry of the operator in turn; `check` looks at what each has left.
template <class Params, class Check>
void ForEachCudaEntry(const Params& params, Check check) {
  REQUIRE_OK(Validate(params));
  bool found = false;
  for (const KernelEntry& entry : Sm12xManifest()) {
    if (entry.op != Params::kOp) continue;
    found = true;
    INFO(entry.name);
    REQUIRE_OK(entry.supports(&params));
    DeviceCopy<unsigned char> workspace(entry.workspace_bytes(&params, CudaMultiprocessors()));
    CudaStream stream(nullptr);
    LaunchContext context;
    context.stream = &stream;
    context.multiprocessors = CudaMultiprocessors();
    context.config = TestConfigOf(entry);
    context.workspace = reinterpret_cast<std::byte*>(workspace.data());
    entry.launch(context, &params);
    REQUIRE_CUDA(cudaGetLastError());
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE(workspace.Intact());
    check();
  }
  REQUIRE(found);
}

template <class Params>
void LaunchCuda(const Params& params) {
  ForEachCudaEntry(params, [] {});
}

}  // namespace dsv4::test
