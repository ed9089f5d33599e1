// SPDX-License-Identifier: Apache-2.0
// Ends what a communicator of NCCL waits for. ncclCommAbort first tells the kernels on the device
// to end, and then waits until every graph that recorded an exchange is destroyed; so it runs on a
// thread of its own, and the device is idle long before it returns.
#pragma once

#include <pthread.h>

#include <chrono>

#include "lib/dist/nccl.h"

namespace dsv4 {

class NcclAbort {
 public:
  NcclAbort() = default;
  NcclAbort(const NcclAbort&) = delete;
  NcclAbort& operator=(const NcclAbort&) = delete;
  // Waits for NCCL, whose graphs are destroyed by now. A driver that no longer destroys graphs (a
  // fault that stays) would make it wait for ever: after kLimit the thread is left to itself.
  ~NcclAbort();

  // Once. Where the system gives no thread, `comm` is aborted by the caller, which then waits.
  void Start(const Nccl* nccl, Nccl::Comm comm);

 private:
  static constexpr auto kLimit = std::chrono::seconds(10);
  struct Call {
    const Nccl* nccl;
    Nccl::Comm comm;
  };
  static void* Run(void* call);

  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace dsv4
