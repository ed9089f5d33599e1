// SPDX-License-Identifier: Apache-2.0
// Suspends and resumes an engine: its memory is destroyed and allocated again from the same plan.
// Block tables, the prefix cache and sessions do not change, and the bytes of the held blocks are
// kept. The rows of a lost device are gone: block tables and prefix cache become empty, and
// sessions keep their tokens.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/engine/engine.h"
#include "lib/io/replaced_file.h"
#include "lib/io/system_memory.h"

namespace dsv4 {

absl::Span<std::byte> Engine::KeptRows::bytes() {
  const auto size = static_cast<size_t>(held.bytes);
  return {file ? reinterpret_cast<std::byte*>(file->bytes().data()) : memory.get(), size};
}

absl::Status Engine::Suspend(const std::string& folder) {
  if (plan_.settings().options.group.grouped()) {
    return Unsupported(
        "an engine of a group of processes (option group_size = ", plan_.settings().ranks(),
        ") cannot be suspended: its other processes would wait for it");
  }
  DSV4_RETURN_IF_ERROR(scheduler_->CheckThread());
  DSV4_ASSIGN_OR_RETURN(const bool closed, gate_.Close());
  if (!closed) return absl::OkStatus();
  const absl::Status status = Contained([&]() -> absl::Status {
    identity();  // reads the weights' files
    DSV4_ASSIGN_OR_RETURN(KeptRows kept, KeepRows(folder));
    kept_.emplace(std::move(kept));
    Log(LogLevel::kInfo, "suspended: ", kept_->held.bytes, " bytes of the sessions' cache are in ",
        folder.empty() ? "host memory" : folder);
    return absl::OkStatus();
  });
  if (status.ok()) FreeMemory();
  gate_.Settle(!status.ok());
  return status;
}

absl::StatusOr<Engine::KeptRows> Engine::KeepRows(const std::string& folder) {
  KeptRows kept;
  kept.held = cache_->held();
  const int64_t bytes = kept.held.bytes;
  if (!folder.empty()) {
    DSV4_ASSIGN_OR_RETURN(ReplacedFile file,
                          ReplacedFile::Create(folder + "/dsv4-suspended", bytes));
    kept.file.emplace(std::move(file));
  } else {
    const std::optional<int64_t> available = AvailableMemory();
    if (available && bytes > *available) {
      return OutOfHostMemory("the sessions of the engine hold ", bytes,
                             " bytes of key/value cache; the host has ", *available,
                             " bytes available; name a folder to keep them in");
    }
    kept.memory = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  }
  DSV4_RETURN_IF_ERROR(memory_->model().Synchronize());
  DSV4_RETURN_IF_ERROR(cache_->ReadHeld(kept.held, kept.bytes()));
  return kept;
}

void Engine::FreeMemory() {
  scheduler_->set_runner(nullptr);
  if (memory_ != nullptr) {
    const ExpertTraffic traffic = expert_traffic();
    const ExpertUse* const use = memory_->weights().use();
    MutexLock lock(&weights_mutex_);
    if (use != nullptr) past_profile_ = use->Total();
    counted_weights_ = nullptr;
    past_traffic_ = traffic;
  }
  memory_.reset();
  if (profile_keeper_ != nullptr) profile_keeper_->Write();
}

absl::Status Engine::GiveUpRows() {
  if (plan_.settings().options.group.grouped()) {
    return Unsupported(
        "an engine of a group of processes (option group_size = ", plan_.settings().ranks(),
        ") that lost a device cannot be resumed: open the group again");
  }
  DSV4_RETURN_IF_ERROR(scheduler_->CheckThread());
  DSV4_ASSIGN_OR_RETURN(const bool closed, gate_.Close());
  if (!closed) return absl::OkStatus();
  const absl::Status status = Contained([&] {
    identity();  // reads the weights' files
    return absl::OkStatus();
  });
  if (status.ok()) {
    FreeMemory();
    cache_->ForgetRows();
    kept_.reset();
  }
  gate_.Settle(!status.ok());
  return status;
}

absl::Status Engine::Resume(const std::function<bool(int64_t, int64_t)>& progress) {
  if (lost()) DSV4_RETURN_IF_ERROR(GiveUpRows());
  DSV4_ASSIGN_OR_RETURN(const bool unlocked, gate_.Unlock());
  if (!unlocked) return absl::OkStatus();
  const absl::Status status = Contained([&] { return AllocateAgain(progress); });
  if (status.ok()) {
    kept_.reset();
  } else {
    FreeMemory();
  }
  gate_.Settle(status.ok());
  return status;
}

absl::Status Engine::AllocateAgain(const std::function<bool(int64_t, int64_t)>& progress) {
  // A device that was lost answers no call any more.
  if (!kept_) DSV4_RETURN_IF_ERROR(plan_.ReopenDevices());
  DSV4_RETURN_IF_ERROR(plan_.FitAgain());
  DSV4_RETURN_IF_ERROR(plan_.ReopenCheckpoint());
  if (HexOf(plan_.checkpoint().Fingerprint()) != fingerprint_) {
    return VersionMismatch(plan_.settings().folder,
                           ": the weights have changed since the engine was suspended");
  }
  std::optional<ExpertProfile> profile = plan_.profile();
  {
    MutexLock lock(&weights_mutex_);
    if (past_profile_) profile = past_profile_;
  }
  DSV4_ASSIGN_OR_RETURN(memory_, EngineMemory::Allocate(&plan_, &cache_,
                                                        {.profile = profile ? &*profile : nullptr,
                                                         .group = nullptr,
                                                         .progress = progress}));
  DSV4_RETURN_IF_ERROR(LimitSteps());
  predicted_decode_ = info().expected_decode;
  if (kept_) DSV4_RETURN_IF_ERROR(cache_->WriteHeld(kept_->held, kept_->bytes()));
  {
    MutexLock lock(&weights_mutex_);
    counted_weights_ = &memory_->weights();
  }
  scheduler_->set_runner(&memory_->runner());
  return absl::OkStatus();
}

}  // namespace dsv4
