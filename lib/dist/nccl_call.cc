// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/nccl_call.h"

#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/base/thread.h"

namespace dsv4 {
namespace {

struct Shared {
  std::function<int()> call;
  std::function<void(int)> late;
  Mutex mutex;
  CondVar changed;
  std::optional<int> result ABSL_GUARDED_BY(mutex);
  bool left ABSL_GUARDED_BY(mutex) = false;  // nobody waits for the result
};

void Run(void* argument) {
  const std::unique_ptr<std::shared_ptr<Shared>> own(
      static_cast<std::shared_ptr<Shared>*>(argument));
  Shared& shared = **own;
  const int result = shared.call();
  bool left = false;
  {
    const MutexLock lock(&shared.mutex);
    shared.result = result;
    left = shared.left;
    shared.changed.SignalAll();
  }
  if (left) shared.late(result);
}

}  // namespace

std::optional<int> CallWithin(std::chrono::milliseconds limit, std::function<int()> call,
                              std::function<void(int)> late) {
  auto shared = std::make_shared<Shared>();
  shared->call = std::move(call);
  shared->late = std::move(late);
  auto argument = std::make_unique<std::shared_ptr<Shared>>(shared);
  Thread thread;
  if (thread.Start(Run, argument.get()) != 0) return shared->call();
  static_cast<void>(argument.release());
  thread.Detach();
  const auto until = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(&shared->mutex);
  while (!shared->result) {
    if (shared->changed.WaitUntil(&shared->mutex, until) || shared->result) continue;
    shared->left = true;
    return std::nullopt;
  }
  return shared->result;
}

}  // namespace dsv4
