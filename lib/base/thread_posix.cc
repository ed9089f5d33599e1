// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <new>

#include "lib/base/float_mode.h"
#include "lib/base/thread.h"

namespace dsv4 {
namespace {

constexpr int kNiceness = 10;

struct Call {
  void (*main)(void*);
  void* argument;
};

void* Main(void* memory) {
  const DefaultFloatMode floats;
  const std::unique_ptr<const Call> own(static_cast<const Call*>(memory));
  own->main(own->argument);
  return nullptr;
}

}  // namespace

int Thread::Start(void (*main)(void* argument), void* argument) {
  static_assert(sizeof(pthread_t) == sizeof handle_);
  std::unique_ptr<Call> call(new (std::nothrow) Call{main, argument});
  if (call == nullptr) return ENOMEM;
  pthread_t thread{};
  const int error = pthread_create(&thread, nullptr, Main, call.get());
  if (error != 0) return error;
  static_cast<void>(call.release());
  handle_ = thread;
  return 0;
}

void Thread::Join() { pthread_join(handle_, nullptr); }

bool Thread::JoinWithin(std::chrono::milliseconds limit) {
  constexpr int64_t kSecond = 1'000'000'000;  // nanoseconds
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  const int64_t end = until.tv_nsec + std::chrono::nanoseconds(limit).count();
  until.tv_sec += end / kSecond;
  until.tv_nsec = end % kSecond;
  if (pthread_timedjoin_np(handle_, nullptr, &until) == 0) return true;
  pthread_detach(handle_);
  return false;
}

void Thread::Detach() { pthread_detach(handle_); }

// On Linux a thread has a niceness of its own.
void Thread::LowerPriority() {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
}

}  // namespace dsv4
