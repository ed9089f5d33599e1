// SPDX-License-Identifier: Apache-2.0
#include "lib/step/mask_worker.h"

#include "lib/base/contained.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

void MaskJob::Run() {
  const auto begin = std::chrono::steady_clock::now();
  status_ = Contained([&] { return Compute(); });
  slow_ = std::chrono::steady_clock::now() - begin > MaskWorker::kPatience;
  // The states stay in the grammar's memory.
  matcher_ = {};
  done_.store(true, std::memory_order_release);
}

absl::Status MaskJob::Compute() {
  DSV4_ASSIGN_OR_RETURN(mask_, matcher_.Mask());
  DSV4_ASSIGN_OR_RETURN(may_end_, matcher_.MayEnd());
  DSV4_ASSIGN_OR_RETURN(may_end_thinking_, matcher_.MayEndThinking());
  return absl::OkStatus();
}

MaskWorker::~MaskWorker() {
  {
    const MutexLock lock(&mutex_);
    ending_ = true;
    started_.SignalAll();
  }
  for (const Thread& thread : threads_) {
    if (thread.started) pthread_join(thread.id, nullptr);
  }
}

void* MaskWorker::Main(void* thread) {
  const Thread* self = static_cast<const Thread*>(thread);
  self->worker->Run(self->takes_slow);
  return nullptr;
}

// pthreads, because std::thread throws if the system gives no thread.
bool MaskWorker::StartThreads() {
  for (const bool takes_slow : {false, true}) {
    Thread& thread = threads_[takes_slow];
    if (thread.started) continue;
    thread.worker = this;
    thread.takes_slow = takes_slow;
    if (pthread_create(&thread.id, nullptr, Main, &thread) != 0) return false;
    thread.started = true;
  }
  return true;
}

void MaskWorker::Start(const std::shared_ptr<MaskJob>& job) {
  {
    const MutexLock lock(&mutex_);
    if (job->queued_) return;
    if (StartThreads()) {
      (job->slow_ ? slow_ : quick_).push_back(job);
      job->queued_ = true;
      started_.SignalAll();
      return;
    }
    job->queued_ = true;
  }
  job->Run();
}

void MaskWorker::Finish(const std::shared_ptr<MaskJob>& job) {
  {
    const MutexLock lock(&mutex_);
    if (std::exchange(job->queued_, true)) {
      while (!job->done()) ended_.Wait(&mutex_);
      return;
    }
  }
  job->Run();
}

void MaskWorker::Await(absl::FunctionRef<bool()> ready, std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  const MutexLock lock(&mutex_);
  while (!ready() && ended_.WaitUntil(&mutex_, end)) {
  }
}

std::shared_ptr<MaskJob> MaskWorker::Take(bool takes_slow) {
  auto& jobs = takes_slow && quick_.empty() ? slow_ : quick_;
  if (jobs.empty()) return nullptr;
  std::shared_ptr<MaskJob> job = std::move(jobs.front());
  jobs.pop_front();
  return job;
}

void MaskWorker::Run(bool takes_slow) {
  const MutexLock lock(&mutex_);
  while (!ending_) {
    const std::shared_ptr<MaskJob> job = Take(takes_slow);
    if (job == nullptr) {
      started_.Wait(&mutex_);
      continue;
    }
    {
      const MutexUnlock unlock(&mutex_);
      // A session that was closed has left the job to this thread.
      if (job.use_count() > 1) job->Run();
    }
    ended_.SignalAll();
  }
}

}  // namespace dsv4
