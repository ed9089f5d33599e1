// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/nccl_abort.h"

#include <memory>
#include <new>

#include "lib/base/log.h"

namespace dsv4 {

void NcclAbort::Run(void* call) {
  const std::unique_ptr<Call> own(static_cast<Call*>(call));
  own->nccl->CommAbort(own->comm);
}

void NcclAbort::Start(const Nccl* nccl, Nccl::Comm comm) {
  auto* const call = new (std::nothrow) Call{nccl, comm};
  running_ = call != nullptr && thread_.Start(Run, call) == 0;
  if (running_) return;
  delete call;
  nccl->CommAbort(comm);
}

NcclAbort::~NcclAbort() {
  if (!running_ || thread_.JoinWithin(kLimit)) return;
  Log(LogLevel::kWarning, "NCCL does not let go of a communicator within ", kLimit.count(), " s");
}

}  // namespace dsv4
