// SPDX-License-Identifier: Apache-2.0
// Batches calls of several sessions that run at the same time. The first caller leads: its thread
// computes steps for all waiting callers until its own call is done. Then another caller leads. The
// scheduler has no thread of its own, and no call waits for a batch to fill.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/step/counters.h"
#include "lib/step/mask_worker.h"
#include "lib/step/prompt_pace.h"
#include "lib/step/step_runner.h"

namespace dsv4 {

class Scheduler;

// The requests that one thread waits for. The destructor waits for them too, because other threads
// may be computing them.
class StepCall {
 public:
  explicit StepCall(Scheduler* scheduler) : scheduler_(scheduler) {}
  StepCall(const StepCall&) = delete;
  StepCall& operator=(const StepCall&) = delete;
  ~StepCall();
  // Says that sessions of the caller which have no request decode, too. Call it before Add.
  void SetDecoding() { decoding_ = true; }

 private:
  friend class Scheduler;
  Scheduler* const scheduler_;
  const std::thread::id thread_ = std::this_thread::get_id();
  CondVar changed_;
  bool decoding_ = false;
  // Guarded by the scheduler's mutex.
  int32_t open_ = 0;  // requests not done
};

class Scheduler {
 public:
  // A step has the batch tokens of all waiting requests that choose a token, and up to
  // `prefill_tokens` prompt tokens, shared evenly by the requests with prompts to compute; while
  // other sessions decode, up to as many as PromptPace says.
  Scheduler(StepRunner* runner, int64_t prefill_tokens, int32_t max_sessions);

  // What steps are timed by, for tests. REQUIRES: no requests.
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  void set_clock(Clock clock) { clock_ = std::move(clock); }

  // Null while nothing can be computed. A runner is on devices that are not lost. REQUIRES: no
  // requests.
  void set_runner(StepRunner* runner);

  // Busy on a thread that is inside a step, in a callback of the log: the step would wait for
  // itself. Call it before Add.
  absl::Status CheckThread();
  // Adds a request to a call. Wait must follow. One request per timeline at a time.
  void Add(StepRequest* request, StepCall* call);
  // Returns when all requests of the call are done.
  void Wait(StepCall* call);
  // Since the scheduler was made. Any thread.
  StepCounts counts() const;
  // For masks that steps do not wait for.
  MaskWorker& masks() { return masks_; }

 private:
  // While it lives, `call` leads.
  class Leadership {
   public:
    Leadership(StepCall** leader, StepCall* call) : leader_(leader) { *leader_ = call; }
    Leadership(const Leadership&) = delete;
    Leadership& operator=(const Leadership&) = delete;
    ~Leadership() { *leader_ = nullptr; }

   private:
    StepCall** const leader_;
  };

  void RunStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompleteCancelled();
  void Assemble() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SharePrefill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool OthersDecode() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Measured(double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Complete(StepRequest* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(const StepOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLone(const StepRequest& request, double seconds) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MaskWorker masks_;
  StepRunner* runner_;
  const int64_t prefill_tokens_;
  Clock clock_;
  mutable Mutex mutex_;
  std::vector<StepRequest*> waiting_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  StepCounts counts_ ABSL_GUARDED_BY(mutex_);
  StepCall* leader_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: no call leads
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  PromptPace pace_ ABSL_GUARDED_BY(mutex_);
  bool shared_ ABSL_GUARDED_BY(mutex_) = false;  // the step has prompts, and others decode
  // The timeline that chose a token last, only to compare it, and when.
  const Timeline* decoder_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::chrono::steady_clock::time_point decoded_ ABSL_GUARDED_BY(mutex_);
  std::vector<StepRequest*> prompts_ ABSL_GUARDED_BY(mutex_);  // scratch of SharePrefill
  // Of the step being run. Written under the lock before the step, then only read.
  std::vector<StepRequest*> taken_;
};

}  // namespace dsv4
