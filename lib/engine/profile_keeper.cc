// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/profile_keeper.h"

#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

absl::StatusOr<std::unique_ptr<ProfileKeeper>> ProfileKeeper::Start(
    std::chrono::milliseconds interval, File file, std::function<ExpertProfile()> counted) {
  std::unique_ptr<ProfileKeeper> keeper(
      new ProfileKeeper(interval, std::move(file), std::move(counted)));
  const int error = keeper->thread_.Start(Main, keeper.get());
  if (error != 0) {
    return OutOfHostMemory("cannot start a thread for the expert profile: ", SystemReason(error));
  }
  keeper->started_ = true;
  return keeper;
}

ProfileKeeper::~ProfileKeeper() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
  if (!started_) return;
  thread_.Join();
  Write();
}

void ProfileKeeper::Write() {
  const absl::Status status = Contained([this]() -> absl::Status {
    MutexLock lock(&writing_);
    ExpertProfile profile = counted_();
    if (profile == written_) return absl::OkStatus();
    DSV4_RETURN_IF_ERROR(WriteExpertProfile(file_.path, file_.checkpoint, profile));
    written_ = std::move(profile);
    return absl::OkStatus();
  });
  if (!status.ok()) Log(LogLevel::kWarning, "expert profile: ", status.message());
}

void ProfileKeeper::Main(void* keeper) { static_cast<ProfileKeeper*>(keeper)->Loop(); }

void ProfileKeeper::Loop() {
  while (Wait()) Write();
}

bool ProfileKeeper::Wait() {
  const auto time = std::chrono::steady_clock::now() + interval_;
  MutexLock lock(&mutex_);
  while (!stop_ && stopped_.WaitUntil(&mutex_, time)) {
  }
  return !stop_;
}

}  // namespace dsv4
