// SPDX-License-Identifier: Apache-2.0
// The threads of an engine's ranks: one for each rank except the first, which runs on the calling
// thread. They sleep between passes and end with the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/thread.h"
#include "lib/base/waitable_word.h"

namespace dsv4 {

class RankThreads {
 public:
  // Errors: OutOfHostMemory if the system gives no thread.
  static absl::StatusOr<std::unique_ptr<RankThreads>> Start(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int ranks() const { return static_cast<int>(workers_.size()); }
  // Calls f(rank) for every rank at the same time. Returns when all have returned, with the status
  // of the lowest rank that failed. An exception of f becomes a status. One thread at a time.
  absl::Status Run(absl::FunctionRef<absl::Status(int rank)> f);

 private:
  struct Worker {
    RankThreads* threads = nullptr;
    int rank = 0;
    Thread thread{};
    absl::Status status{};  // of the last call
  };
  explicit RankThreads(int ranks) : workers_(static_cast<size_t>(ranks)) {}
  static void Main(void* worker);
  void Loop(Worker* worker);

  const absl::FunctionRef<absl::Status(int rank)>* f_ = nullptr;  // of the running call
  std::vector<Worker> workers_;  // [ranks]; the first has no thread of its own
  int started_ = 0;
  WaitableWord calls_;
  WaitableWord running_;  // threads that have not returned
  std::atomic<bool> stop_{false};
};

}  // namespace dsv4
