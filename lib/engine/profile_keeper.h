// SPDX-License-Identifier: Apache-2.0
// Writes an engine's expert profile at intervals, on its own thread. A process that is killed loses
// only the counts since the last write.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/experts/expert_profile.h"
#include "lib/io/content_hash.h"

namespace dsv4 {

class ProfileKeeper {
 public:
  struct File {
    std::string path;
    ContentHash checkpoint;
  };
  // Writes what `counted` returns, every `interval` and at the end. Errors: OutOfHostMemory if the
  // system gives no thread.
  static absl::StatusOr<std::unique_ptr<ProfileKeeper>> Start(
      std::chrono::milliseconds interval, File file, std::function<ExpertProfile()> counted);
  // Waits for a running write, and writes.
  ~ProfileKeeper();
  // Replaces the file, if it would change. Any thread; failures are logged.
  void Write();
  ProfileKeeper(const ProfileKeeper&) = delete;
  ProfileKeeper& operator=(const ProfileKeeper&) = delete;

 private:
  ProfileKeeper(std::chrono::milliseconds interval, File file,
                std::function<ExpertProfile()> counted)
      : interval_(interval), file_(std::move(file)), counted_(std::move(counted)) {}
  static void Main(void* keeper);
  void Loop();
  // Waits until the next write is due. False: stop.
  bool Wait();

  const std::chrono::milliseconds interval_;
  const File file_;
  const std::function<ExpertProfile()> counted_;
  Mutex writing_;
  std::optional<ExpertProfile> written_ ABSL_GUARDED_BY(writing_);
  Thread thread_;
  bool started_ = false;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace dsv4
