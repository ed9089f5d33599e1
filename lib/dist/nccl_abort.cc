// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/nccl_abort.h"

#include <ctime>
#include <memory>
#include <new>

#include "lib/base/log.h"

namespace dsv4 {

void* NcclAbort::Run(void* call) {
  const std::unique_ptr<Call> own(static_cast<Call*>(call));
  own->nccl->CommAbort(own->comm);
  return nullptr;
}

// pthreads, because std::thread throws if the system gives no thread.
void NcclAbort::Start(const Nccl* nccl, Nccl::Comm comm) {
  auto* const call = new (std::nothrow) Call{nccl, comm};
  running_ = call != nullptr && pthread_create(&thread_, nullptr, Run, call) == 0;
  if (running_) return;
  delete call;
  nccl->CommAbort(comm);
}

NcclAbort::~NcclAbort() {
  if (!running_) return;
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kLimit.count();
  if (pthread_timedjoin_np(thread_, nullptr, &until) == 0) return;
  pthread_detach(thread_);
  Log(LogLevel::kWarning, "NCCL does not let go of a communicator within ", kLimit.count(), " s");
}

}  // namespace dsv4
