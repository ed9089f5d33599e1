// SPDX-License-Identifier: Apache-2.0
#include "tests/support/launch_marks.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace dsv4::test {
namespace {

std::atomic<int64_t> launches;

class Marks {
 public:
  Marks() {
    const char* const text = std::getenv("DSV4_TEST_MARK");
    if (text == nullptr) return;
    const std::optional<Share> share = ParseShare(text);
    if (!share) {
      std::fprintf(stderr, "DSV4_TEST_MARK: want K/N with 0 <= K < N, got \"%s\"\n", text);
      std::exit(2);
    }
    marks_.emplace(*share);
  }
  ~Marks() {
    if (!marks_) return;
    std::fprintf(stderr, "marked: %lld of %lld launches, of %lld kernels' shapes\n",
                 static_cast<long long>(marks_->marked()),
                 static_cast<long long>(marks_->launches()),
                 static_cast<long long>(marks_->kinds()));
  }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  bool Next(const void* kernel, dim3 blocks, dim3 threads, size_t shared_bytes,
            cudaStream_t stream) {
    if (!marks_ || Recording(stream)) return false;
    const std::lock_guard lock(mutex_);
    return marks_->Next(kernel, {.blocks = {blocks.x, blocks.y, blocks.z},
                                 .threads = {threads.x, threads.y, threads.z},
                                 .shared_bytes = shared_bytes});
  }

 private:
  // Whether what the stream is given goes to a graph.
  static bool Recording(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
  }

  std::mutex mutex_;
  std::optional<LaunchMarks> marks_;
} marks;

// Of this thread, where the launch is marked.
class Range {
 public:
  explicit Range(bool marked) : marked_(marked) {
    ++launches;
    if (marked_) nvtxRangePushA("check");
  }
  ~Range() {
    if (marked_) nvtxRangePop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  const bool marked_;
};

}  // namespace

int64_t LaunchesSoFar() { return launches; }

}  // namespace dsv4::test

// The linker's names: calls of f go to __wrap_f, and __real_f is what they went to before.
extern "C" {

// What <<<>>> becomes.
cudaError_t __real___cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** args,
                                      size_t shared_bytes, cudaStream_t stream);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 blocks, dim3 threads, void** args,
                                      size_t shared_bytes, cudaStream_t stream) {
  const dsv4::test::Range range(
      dsv4::test::marks.Next(kernel, blocks, threads, shared_bytes, stream));
  return __real___cudaLaunchKernel(kernel, blocks, threads, args, shared_bytes, stream);
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args);
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                       void** args) {
  const dsv4::test::Range range(dsv4::test::marks.Next(kernel, config->gridDim, config->blockDim,
                                                       config->dynamicSmemBytes, config->stream));
  return __real_cudaLaunchKernelExC(config, kernel, args);
}

}  // extern "C"
