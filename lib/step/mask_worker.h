// SPDX-License-Identifier: Apache-2.0
// Computes the token masks of grammars outside of steps. A mask may take a second; a step must not
// wait for it, because it computes the tokens of other sessions too.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/grammar/grammar.h"

namespace dsv4 {

// What may follow at one position of an output. It is computed in slices, each with twice the work
// of the one before. All of them together have grammar::kMaxWork; then the job fails.
class MaskJob {
 public:
  static constexpr int kSlices = 7;  // the first has 1/128 of it, about 8 ms

  // `matcher`: a copy of the session's, which the job uses alone. `slice`: the first one. Later
  // ones come behind those of other jobs.
  explicit MaskJob(grammar::Matcher matcher, int slice)
      : matcher_(std::move(matcher)), slice_(slice) {}

  // After MaskWorker says that it is done.
  const absl::Status& status() const { return status_; }
  const grammar::Following& following() const { return *following_; }  // if the status is OK
  const grammar::Matcher& matcher() const { return matcher_; }
  // The slice that brought the result; 0 if it took no longer than a step waits.
  int slice() const { return slice_; }

 private:
  friend class MaskWorker;
  enum class State { kNew, kQueued, kRunning, kDone };

  // One slice. True if that was the last one.
  bool RunSlice();

  grammar::Matcher matcher_;
  int slice_;
  absl::Status status_;
  std::optional<grammar::Following> following_;
  State state_ = State::kNew;  // the worker's mutex guards it
  int wanted_ = 0;             // threads in Finish
};

// Two threads, of lower priority than those that compute steps. They start with the first job, and
// one of them takes no job but those that begin with their first slice. So neither many slow jobs
// nor one delay the others for longer than a slice.
class MaskWorker {
 public:
  // How long a step waits for masks.
  static constexpr std::chrono::microseconds kPatience{1000};

  MaskWorker() = default;
  // Waits for the slices that run and drops the jobs.
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Runs the job unless that was asked before. If the system has no thread left, the caller's
  // thread runs it.
  void Start(const std::shared_ptr<MaskJob>& job);
  // Runs the job on this thread, as far as no other thread has.
  void Finish(const std::shared_ptr<MaskJob>& job);
  bool IsDone(const MaskJob& job) const;
  // Waits until `ready` returns true, but no longer than `time`. `ready` is called again after each
  // job; its argument tells whether a job is done.
  using Done = absl::FunctionRef<bool(const MaskJob&)>;
  void Await(absl::FunctionRef<bool(Done)> ready, std::chrono::microseconds time);

 private:
  using State = MaskJob::State;
  struct Worker {
    MaskWorker* worker = nullptr;
    bool takes_all = false, started = false;
    Thread thread{};
  };

  static void Main(void* own);
  // False if the system has no thread left.
  bool StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(bool takes_all);
  std::shared_ptr<MaskJob> Take(bool takes_all) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Queue(std::shared_ptr<MaskJob> job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs a slice without the lock.
  void RunSlice(MaskJob* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar queued_, ran_;
  std::array<std::deque<std::shared_ptr<MaskJob>>, MaskJob::kSlices> queues_
      ABSL_GUARDED_BY(mutex_);  // by slice
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  Worker workers_[2];  // started under the lock
};

}  // namespace dsv4
