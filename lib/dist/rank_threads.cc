// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/rank_threads.h"

#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/device/watched_thread.h"

namespace dsv4 {

absl::StatusOr<std::unique_ptr<RankThreads>> RankThreads::Start(int ranks) {
  std::unique_ptr<RankThreads> threads(new RankThreads(ranks));
  for (int rank = 1; rank < ranks; ++rank) {
    Worker& worker = threads->workers_[static_cast<size_t>(rank)];
    worker.threads = threads.get();
    worker.rank = rank;
    const int error = worker.thread.Start(Main, &worker);
    if (error != 0) {
      return OutOfHostMemory("cannot start a thread for an engine's devices: ",
                             SystemReason(error));
    }
    ++threads->started_;
  }
  return threads;
}

RankThreads::~RankThreads() {
  stop_.store(true);
  calls_.value.fetch_add(1);
  calls_.WakeAll();
  for (int rank = 1; rank <= started_; ++rank) {
    workers_[static_cast<size_t>(rank)].thread.Join();
  }
}

void RankThreads::Main(void* worker) {
  auto* const self = static_cast<Worker*>(worker);
  self->threads->Loop(self);
}

void RankThreads::Loop(Worker* worker) {
  for (uint32_t seen = 0;; ++seen) {
    calls_.WaitWhile(seen);
    if (stop_.load()) return;
    worker->status = Contained([&] { return (*f_)(worker->rank); });
    if (running_.value.fetch_sub(1) == 1) running_.WakeAll();
  }
}

absl::Status RankThreads::Run(absl::FunctionRef<absl::Status(int rank)> f) {
  f_ = &f;
  running_.value.store(static_cast<uint32_t>(started_));
  if (started_ > 0) {
    calls_.value.fetch_add(1);
    calls_.WakeAll();
  }
  workers_[0].status = Contained([&] { return f(0); });
  {
    const DriverCall in_driver;  // of another rank
    for (uint32_t running; (running = running_.value.load()) > 0;) running_.WaitWhile(running);
  }
  for (Worker& worker : workers_) {
    if (!worker.status.ok()) return std::exchange(worker.status, absl::OkStatus());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
