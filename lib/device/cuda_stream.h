// SPDX-License-Identifier: Apache-2.0
// The stream of a cuda device, as what launches on it needs it. Knows no CUDA header, so that
// kernels' launchers and their host code can both include it.
#pragma once

#include "lib/device/stream.h"

namespace dsv4 {

class CudaStream final : public Stream {
 public:
  explicit CudaStream(void* handle) : handle_(handle) {}
  void* handle() const { return handle_; }  // a cudaStream_t

 private:
  void* handle_;
};

}  // namespace dsv4
