// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/rank_threads.h"

#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/device/watched_thread.h"

namespace dsv4 {

// pthreads, because std::thread throws if the system gives no thread.
absl::StatusOr<std::unique_ptr<RankThreads>> RankThreads::Start(int ranks,
                                                                absl::string_view purpose) {
  std::unique_ptr<RankThreads> threads(new RankThreads(ranks));
  for (int rank = 1; rank < ranks; ++rank) {
    Worker& worker = threads->workers_[static_cast<size_t>(rank)];
    worker.threads = threads.get();
    worker.rank = rank;
    const int error = pthread_create(&worker.thread, nullptr, Main, &worker);
    if (error != 0) {
      return OutOfHostMemory("cannot start a thread for ", purpose, ": ", SystemReason(error));
    }
    ++threads->started_;
  }
  return threads;
}

RankThreads::~RankThreads() {
  stop_.store(true);
  calls_.fetch_add(1);
  calls_.notify_all();
  for (int rank = 1; rank <= started_; ++rank) {
    pthread_join(workers_[static_cast<size_t>(rank)].thread, nullptr);
  }
}

void* RankThreads::Main(void* worker) {
  auto* const self = static_cast<Worker*>(worker);
  self->threads->Loop(self);
  return nullptr;
}

void RankThreads::Loop(Worker* worker) {
  for (uint32_t seen = 0;; ++seen) {
    calls_.wait(seen);
    if (stop_.load()) return;
    worker->status = Contained([&] { return (*f_)(worker->rank); });
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

absl::Status RankThreads::Run(absl::FunctionRef<absl::Status(int rank)> f) {
  f_ = &f;
  running_.store(started_);
  if (started_ > 0) {
    calls_.fetch_add(1);
    calls_.notify_all();
  }
  workers_[0].status = Contained([&] { return f(0); });
  {
    const DriverCall in_driver;  // of another rank
    for (int32_t running; (running = running_.load()) > 0;) running_.wait(running);
  }
  for (Worker& worker : workers_) {
    if (!worker.status.ok()) return std::exchange(worker.status, absl::OkStatus());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
