// SPDX-License-Identifier: Apache-2.0
// The CUDA backend under the cases of tests/kernels/op, on a GPU or on the one of tests/emulation.
// DSV4_TEST_CONFIG chooses the config that its entries run with (cuda_config.h).
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/sm12x/manifest.h"
#include "lib/device/cuda_stream.h"
#include "tests/kernels/cuda_config.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/kernels/tested_backend.h"

namespace dsv4::test {
namespace {

// Lets blocks of experts wait for each other. On the emulated GPU not those of the model's width:
// the threads of all blocks would be too many. Of narrow experts a block has one tile with the
// multiprocessors of a GPU, so there one row has as few as its kernel takes.
void AllowWaitingBlocks(const ExpertFfnParams& p, LaunchContext* context) {
  if (EmulatedGpu()) {
    if (p.hidden > 1024) return;
    if (p.rows == 1) context->multiprocessors = static_cast<int32_t>(p.inter / 16);
  }
  static std::byte* const memory = [] {
    std::byte* made = nullptr;
    REQUIRE_CUDA(cudaMalloc(reinterpret_cast<void**>(&made), kMarkedBytes));
    REQUIRE_CUDA(cudaMemset(made, 0, kMarkedBytes));
    return made;
  }();
  context->marked = memory;
}

// Captured in a graph, as steps are; with a workspace that is filled with NaNs, between guards.
void Replay(const KernelEntry& entry, const void* params) {
  INFO(entry.name);
  const DeviceCopy<std::byte> workspace(entry.workspace_bytes(params, CudaMultiprocessors()));
  REQUIRE_CUDA(cudaMemset(workspace.data(), 0xff, static_cast<size_t>(workspace.size())));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  cudaStream_t on = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking));
  CudaStream stream(on);
  LaunchContext context;
  context.stream = &stream;
  context.multiprocessors = CudaMultiprocessors();
  context.config = TestConfigOf(entry);
  context.workspace = workspace.data();
  if (entry.op == Op::kExpertFfn) {
    AllowWaitingBlocks(*static_cast<const ExpertFfnParams*>(params), &context);
  }
  // Few multiprocessors give a block of hc_pre more rows than it computes comb of at once.
  if (entry.op == Op::kHcPre && static_cast<const HcPreParams*>(params)->rows >= 1000) {
    context.multiprocessors = 27;
  }
  REQUIRE_CUDA(cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal));
  entry.launch(context, params);
  const cudaError_t launched = cudaPeekAtLastError();
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(on, &graph));
  REQUIRE_CUDA(launched);
  cudaGraphExec_t executable = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  REQUIRE_CUDA(cudaGraphLaunch(executable, on));
  REQUIRE_CUDA(cudaStreamSynchronize(on));
  REQUIRE_CUDA(cudaGraphExecDestroy(executable));
  REQUIRE_CUDA(cudaStreamDestroy(on));
  REQUIRE(workspace.Intact());
}

}  // namespace

const TestedBackend& Tested() {
  static const TestedBackend backend = {
      .manifest = Sm12xManifest(),
      .formats = {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor},
      .allocate =
          [](int64_t bytes) {
            std::byte* memory = nullptr;
            REQUIRE_CUDA(cudaMalloc(reinterpret_cast<void**>(&memory), static_cast<size_t>(bytes)));
            return memory;
          },
      .release = [](std::byte* memory) { cudaFree(memory); },
      .copy =
          [](void* to, const void* from, int64_t bytes) {
            REQUIRE_CUDA(cudaDeviceSynchronize());
            REQUIRE_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
          },
      .launch = [](const KernelEntry& entry, const void* params, int) { Replay(entry, params); },
      .for_each_variant = [](const std::function<void()>& test) { test(); },
      // docs/adr/0022-f32-sums-in-a-stated-order.md
      .equal_sums = 1 - 1.0 / 400,
      .equal_others = 1 - 1.0 / 400,
      .host_memory = false,
      .most_heads = 128,
      .most_rows = 65537,
  };
  return backend;
}

}  // namespace dsv4::test
