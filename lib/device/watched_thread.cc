// SPDX-License-Identifier: Apache-2.0
#include "lib/device/watched_thread.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "lib/base/error.h"
#include "lib/base/mutex.h"

namespace dsv4 {

struct WatchedThread::Shared {
  // Twice the calls of the driver so far; one more during a call.
  std::atomic<uint64_t> calls{0};
  int depth = 0;  // of nested calls; the thread's own
  // Work given and done so far: what both sides look at before they sleep.
  std::atomic<uint64_t> given{0}, done{0};
  Mutex mutex;
  CondVar changed;
  const absl::FunctionRef<void()>* work ABSL_GUARDED_BY(mutex) = nullptr;  // null: done
  bool ends ABSL_GUARDED_BY(mutex) = false;
  std::thread::id id ABSL_GUARDED_BY(mutex);
};

namespace {

// In place of Shared::calls.
constexpr uint64_t kLeft = std::numeric_limits<uint64_t>::max();
constexpr int kLooks = 32;  // within a limit
constexpr std::chrono::milliseconds kLongestNap{1000};

// To sleep and to be woken takes a thread 20 us or more, twice in each step of a millisecond or
// two. So the thread looks for new work for a while, and whoever waits looks for the end around the
// time that the work took before. Both leave the core to others that need it.
constexpr std::chrono::microseconds kLooksForWork{200}, kLooksForEnd{500};

thread_local WatchedThread::Shared* watched = nullptr;

// Returns when `count` is another than `seen`, or at `end`.
void LookUntil(const std::atomic<uint64_t>& count, uint64_t seen,
               std::chrono::steady_clock::time_point end) {
  while (count.load(std::memory_order_acquire) == seen && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
}

std::atomic<int> calls_left{0};

// The end of a thread whose call has returned after all.
[[noreturn]] void StayHere() {
  calls_left.fetch_sub(1);
  for (;;) std::this_thread::sleep_for(std::chrono::hours(24));
}

void Main(void* argument) {
  const std::unique_ptr<std::shared_ptr<WatchedThread::Shared>> own(
      static_cast<std::shared_ptr<WatchedThread::Shared>*>(argument));
  WatchedThread::Shared& shared = **own;
  watched = &shared;
  MutexLock lock(&shared.mutex);
  shared.id = std::this_thread::get_id();
  for (;;) {
    while (shared.work == nullptr && !shared.ends) shared.changed.Wait(&shared.mutex);
    if (shared.work == nullptr) return;
    {
      const absl::FunctionRef<void()> work = *shared.work;
      const MutexUnlock unlock(&shared.mutex);
      work();
    }
    shared.work = nullptr;
    const uint64_t done = shared.done.fetch_add(1, std::memory_order_release) + 1;
    shared.changed.SignalAll();
    const MutexUnlock unlock(&shared.mutex);
    LookUntil(shared.given, done, std::chrono::steady_clock::now() + kLooksForWork);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedThread>> WatchedThread::Start(
    std::chrono::milliseconds limit) {
  auto shared = std::make_shared<Shared>();
  std::unique_ptr<WatchedThread> thread(new WatchedThread(limit, shared));
  auto argument = std::make_unique<std::shared_ptr<Shared>>(shared);
  const int error = thread->thread_.Start(Main, argument.get());
  if (error != 0) {
    const MutexLock lock(&shared->mutex);
    shared->ends = true;
    shared->calls.store(kLeft);  // there is none to wait for
    return OutOfHostMemory("cannot start a thread for an engine's steps: ", SystemReason(error));
  }
  static_cast<void>(argument.release());
  return thread;
}

WatchedThread::~WatchedThread() {
  if (left()) return;
  {
    const MutexLock lock(&shared_->mutex);
    shared_->ends = true;
    shared_->changed.SignalAll();
  }
  thread_.Join();
}

class WatchedThread::Look {
 public:
  Look(Shared* shared, std::chrono::milliseconds limit) : shared_(shared), limit_(limit) {}

  // Leaves the thread behind if it has been in one call for the limit.
  bool Leaves() {
    const auto now = std::chrono::steady_clock::now();
    uint64_t calls = shared_->calls.load(std::memory_order_acquire);
    if (calls != calls_ || calls % 2 == 0) {
      calls_ = calls;
      since_ = now;
      return false;
    }
    if (now - since_ < limit_) return false;
    calls_left.fetch_add(1);
    if (shared_->calls.compare_exchange_strong(calls, kLeft, std::memory_order_acq_rel))
      return true;
    calls_left.fetch_sub(1);
    return false;
  }

 private:
  Shared* const shared_;
  const std::chrono::milliseconds limit_;
  uint64_t calls_ = 0;
  std::chrono::steady_clock::time_point since_{};
};

bool WatchedThread::Run(absl::FunctionRef<void()> work) {
  if (left()) return false;
  const auto nap = std::clamp<std::chrono::milliseconds>(limit_ / kLooks,
                                                         std::chrono::milliseconds(1), kLongestNap);
  Look look(shared_.get(), limit_);
  const auto begin = std::chrono::steady_clock::now();
  MutexLock lock(&shared_->mutex);
  shared_->work = &work;
  const uint64_t done = shared_->given.fetch_add(1, std::memory_order_release);
  shared_->changed.SignalAll();
  // A call that hangs is seen as soon after work that took long as after any other.
  const auto looks =
      begin + std::min<std::chrono::steady_clock::duration>(last_, nap) - kLooksForEnd;
  while (shared_->work != nullptr && shared_->changed.WaitUntil(&shared_->mutex, looks)) {
  }
  if (shared_->work != nullptr) {
    const MutexUnlock unlock(&shared_->mutex);
    LookUntil(shared_->done, done, std::max(begin, looks) + 2 * kLooksForEnd);
  }
  auto until = std::chrono::steady_clock::now() + nap;
  while (shared_->work != nullptr) {
    if (shared_->changed.WaitUntil(&shared_->mutex, until)) continue;
    if (look.Leaves()) {
      thread_.Detach();
      return false;
    }
    until = std::chrono::steady_clock::now() + nap;
  }
  last_ = std::chrono::steady_clock::now() - begin;
  return true;
}

bool WatchedThread::left() const { return shared_->calls.load(std::memory_order_acquire) == kLeft; }

std::thread::id WatchedThread::id() const {
  const MutexLock lock(&shared_->mutex);
  return shared_->id;
}

int DriverCallsLeft() { return calls_left.load(); }

DriverCall::DriverCall() {
  WatchedThread::Shared* const own = watched;
  if (own == nullptr || own->depth++ > 0) return;
  own->calls.store(own->calls.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

DriverCall::~DriverCall() {
  WatchedThread::Shared* const own = watched;
  if (own == nullptr) return;
  uint64_t calls = own->calls.load(std::memory_order_relaxed);
  if (calls == kLeft) StayHere();
  if (--own->depth > 0) return;
  if (!own->calls.compare_exchange_strong(calls, calls + 1, std::memory_order_acq_rel)) StayHere();
}

}  // namespace dsv4
