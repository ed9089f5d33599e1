// SPDX-License-Identifier: Apache-2.0
// Computes the token masks of grammars outside of steps. A mask may take a second; a step must not
// wait for it, because it computes the tokens of other sessions too.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/grammar/grammar.h"

namespace dsv4 {

// The mask at one position of an output.
class MaskJob {
 public:
  // A copy of the session's matcher, which the job uses alone.
  explicit MaskJob(grammar::Matcher matcher, bool slow)
      : matcher_(std::move(matcher)), slow_(slow) {}

  // Any thread; once.
  void Run();
  bool done() const { return done_.load(std::memory_order_acquire); }

  // After done().
  const absl::Status& status() const { return status_; }
  const std::shared_ptr<const grammar::MaskBits>& mask() const { return mask_; }
  bool may_end() const { return may_end_; }
  bool may_end_thinking() const { return may_end_thinking_; }
  // It took longer than a step may wait.
  bool slow() const { return slow_; }

 private:
  friend class MaskWorker;
  absl::Status Compute();

  grammar::Matcher matcher_;
  bool slow_;  // before Run: jobs of this session were slow
  bool queued_ = false;
  absl::Status status_;
  std::shared_ptr<const grammar::MaskBits> mask_;
  bool may_end_ = false, may_end_thinking_ = false;
  std::atomic<bool> done_ = false;
};

// Two threads, which start with the first job. One of them takes no job of a session whose jobs
// were slow, so that such sessions do not delay the others'.
class MaskWorker {
 public:
  // How long a step waits for masks.
  static constexpr std::chrono::microseconds kPatience{2000};

  MaskWorker() = default;
  // Waits for the jobs that run and drops the others.
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Runs the job unless that was asked before. If the system has no thread left, the caller's
  // thread runs it.
  void Start(const std::shared_ptr<MaskJob>& job);
  // Runs the job on this thread, or waits for the thread that has it.
  void Finish(const std::shared_ptr<MaskJob>& job);
  // Waits until `ready` returns true, but no longer than `time`. `ready` is called again after each
  // job.
  void Await(absl::FunctionRef<bool()> ready, std::chrono::microseconds time);

 private:
  struct Thread {
    MaskWorker* worker = nullptr;
    bool takes_slow = false, started = false;
    pthread_t id{};
  };

  static void* Main(void* thread);
  // False if the system has no thread left.
  bool StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(bool takes_slow);
  std::shared_ptr<MaskJob> Take(bool takes_slow) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar started_, ended_;
  std::deque<std::shared_ptr<MaskJob>> quick_ ABSL_GUARDED_BY(mutex_), slow_
      ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Thread threads_[2];  // started under the lock
};

}  // namespace dsv4
