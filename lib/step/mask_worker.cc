// SPDX-License-Identifier: Apache-2.0
#include "lib/step/mask_worker.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

bool MaskJob::RunSlice() {
  const auto begin = std::chrono::steady_clock::now();
  status_ = Contained([&]() -> absl::Status {
    DSV4_ASSIGN_OR_RETURN(following_, matcher_.Follow(grammar::kMaxWork >> (kSlices - slice_)));
    return absl::OkStatus();
  });
  if (!status_.ok() || following_) {
    if (std::chrono::steady_clock::now() - begin <= MaskWorker::kPatience) slice_ = 0;
    return true;
  }
  if (slice_ < kSlices - 1) {
    ++slice_;
    return false;
  }
  status_ = Contained([&] {
    return Unsupported("the grammar needs more than ", grammar::kMaxWork >> 20,
                       " Mi steps to find what may follow");
  });
  return true;
}

MaskWorker::~MaskWorker() {
  {
    const MutexLock lock(&mutex_);
    ending_ = true;
    queued_.SignalAll();
  }
  for (Worker& worker : workers_) {
    if (worker.started) worker.thread.Join();
  }
}

void MaskWorker::Main(void* own) {
  Thread::LowerPriority();
  const auto* const self = static_cast<const Worker*>(own);
  self->worker->Run(self->takes_all);
}

bool MaskWorker::StartThreads() {
  for (const bool takes_all : {false, true}) {
    Worker& worker = workers_[takes_all];
    if (worker.started) continue;
    worker.worker = this;
    worker.takes_all = takes_all;
    if (worker.thread.Start(Main, &worker) != 0) return false;
    worker.started = true;
  }
  return true;
}

void MaskWorker::Queue(std::shared_ptr<MaskJob> job) {
  job->state_ = State::kQueued;
  auto& queue = queues_[static_cast<size_t>(job->slice_)];
  queue.push_back(std::move(job));
  queued_.SignalAll();
}

void MaskWorker::RunSlice(MaskJob* job) {
  job->state_ = State::kRunning;
  bool done;
  {
    const MutexUnlock unlock(&mutex_);
    done = job->RunSlice();
  }
  job->state_ = done ? State::kDone : State::kNew;
  ran_.SignalAll();
}

void MaskWorker::Start(const std::shared_ptr<MaskJob>& job) {
  const MutexLock lock(&mutex_);
  if (job->state_ != State::kNew || job->wanted_ > 0) return;
  if (StartThreads()) return Queue(job);
  while (job->state_ != State::kDone) RunSlice(job.get());
}

void MaskWorker::Finish(const std::shared_ptr<MaskJob>& job) {
  const MutexLock lock(&mutex_);
  ++job->wanted_;
  while (job->state_ != State::kDone) {
    if (job->state_ == State::kRunning) {
      ran_.Wait(&mutex_);
      continue;
    }
    if (job->state_ == State::kQueued) {
      auto& queue = queues_[static_cast<size_t>(job->slice_)];
      queue.erase(std::find(queue.begin(), queue.end(), job));
    }
    RunSlice(job.get());
  }
  --job->wanted_;
}

bool MaskWorker::IsDone(const MaskJob& job) const {
  const MutexLock lock(&mutex_);
  return job.state_ == State::kDone;
}

void MaskWorker::Await(absl::FunctionRef<bool(Done)> ready, std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  const auto is_done = [](const MaskJob& job) { return job.state_ == State::kDone; };
  const MutexLock lock(&mutex_);
  while (!ready(is_done) && ran_.WaitUntil(&mutex_, end)) {
  }
}

// Those first that have had least.
std::shared_ptr<MaskJob> MaskWorker::Take(bool takes_all) {
  for (auto& queue : queues_) {
    if (!queue.empty()) {
      std::shared_ptr<MaskJob> job = std::move(queue.front());
      queue.pop_front();
      return job;
    }
    if (!takes_all) break;
  }
  return nullptr;
}

void MaskWorker::Run(bool takes_all) {
  const MutexLock lock(&mutex_);
  while (!ending_) {
    std::shared_ptr<MaskJob> job = Take(takes_all);
    if (job == nullptr) {
      queued_.Wait(&mutex_);
      continue;
    }
    // A session that was closed has left the job to this thread.
    if (job.use_count() == 1) {
      const MutexUnlock unlock(&mutex_);
      job = nullptr;  // frees the grammar's memory
      continue;
    }
    RunSlice(job.get());
    if (job->state_ != State::kNew || job->wanted_ > 0) continue;
    const absl::Status queued = Contained([&] {
      mutex_.AssertHeld();
      Queue(job);
      return absl::OkStatus();
    });
    if (queued.ok()) continue;
    job->status_ = queued;
    job->state_ = State::kDone;
    ran_.SignalAll();
  }
}

}  // namespace dsv4
