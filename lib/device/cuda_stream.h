// SPDX-License-Identifier: Apache-2.0
// The stream of a cuda device. Includes no CUDA header, so that host code can include it as well as
// the launchers of kernels.
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
