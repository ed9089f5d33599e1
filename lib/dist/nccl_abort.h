// SPDX-License-Identifier: Apache-2.0
// Ends the waits of an NCCL communicator. ncclCommAbort first tells the kernels on the device to
// end. It then waits until every graph that recorded an exchange is destroyed. So it runs on its
// own thread; the device is idle long before it returns.
#pragma once

#include <chrono>

#include "lib/base/thread.h"
#include "lib/dist/nccl.h"

namespace dsv4 {

class NcclAbort {
 public:
  NcclAbort() = default;
  NcclAbort(const NcclAbort&) = delete;
  NcclAbort& operator=(const NcclAbort&) = delete;
  // Waits for the thread. REQUIRES: the graphs are destroyed. After a fault the driver may never
  // destroy them; after kLimit the thread is therefore detached.
  ~NcclAbort();

  // Starts the abort. Called once. If the system gives no thread, aborts on the calling thread and
  // waits.
  void Start(const Nccl* nccl, Nccl::Comm comm);

 private:
  static constexpr auto kLimit = std::chrono::seconds(10);
  struct Call {
    const Nccl* nccl;
    Nccl::Comm comm;
  };
  static void Run(void* call);

  Thread thread_;
  bool running_ = false;
};

}  // namespace dsv4
