// SPDX-License-Identifier: Apache-2.0
// Suspends and resumes an engine. Block tables, the prefix cache and sessions do not change: only
// device memory is freed, and the bytes of the held blocks are kept.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/io/replaced_file.h"
#include "lib/io/system_memory.h"
#include "lib/runtime/engine.h"

namespace dsv4 {

absl::Span<std::byte> Engine::KeptRows::bytes() {
  const auto size = static_cast<size_t>(held.bytes);
  return {file ? reinterpret_cast<std::byte*>(file->bytes().data()) : memory.get(), size};
}

absl::Status Engine::Suspend(const std::string& folder) {
  if (group_ != nullptr) {
    return Unsupported("an engine of a group of processes (option group_size = ", ranks(),
                       ") cannot be suspended: its other processes would wait for it");
  }
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
  if (status.ok()) GiveBack();
  if (status.ok() && profile_keeper_ != nullptr) WriteProfile();
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
  DSV4_RETURN_IF_ERROR(model_->Synchronize());
  DSV4_RETURN_IF_ERROR(cache_->ReadHeld(kept.held, kept.bytes()));
  return kept;
}

void Engine::GiveBack() {
  scheduler_->set_runner(nullptr);
  runner_.reset();
  batch_.reset();
  model_.reset();
  cache_->FreeMemory();
  const ExpertTraffic traffic = expert_traffic();
  if (weights_ != nullptr && weights_->use() != nullptr) profile_ = weights_->use()->Total();
  {
    MutexLock lock(&weights_mutex_);
    counted_weights_ = nullptr;
    past_traffic_ = traffic;
    if (profile_) past_profile_ = *profile_;
  }
  weights_.reset();
}

absl::Status Engine::Resume(const std::function<bool(int64_t, int64_t)>& progress) {
  DSV4_ASSIGN_OR_RETURN(const bool unlocked, gate_.Unlock());
  if (!unlocked) return absl::OkStatus();
  const absl::Status status = Contained([&] { return TakeBack(progress); });
  if (status.ok()) {
    kept_.reset();
  } else {
    GiveBack();
  }
  gate_.Settle(status.ok());
  return status;
}

absl::Status Engine::TakeBack(const std::function<bool(int64_t, int64_t)>& progress) {
  EngineOptions options = options_;
  options.progress = progress;
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, OpenCheckpoint(folder_, options));
  if (HexOf(checkpoint->Fingerprint()) != fingerprint_) {
    return VersionMismatch(folder_, ": the weights have changed since the engine was suspended");
  }
  DSV4_RETURN_IF_ERROR(CheckHostRoom(options));
  DSV4_RETURN_IF_ERROR(CheckRoom());
  DSV4_RETURN_IF_ERROR(LoadWeights(std::move(checkpoint), options));
  DSV4_RETURN_IF_ERROR(cache_->AllocateMemory());
  DSV4_RETURN_IF_ERROR(cache_->WriteHeld(kept_->held, kept_->bytes()));
  DSV4_RETURN_IF_ERROR(BuildModel(options));
  scheduler_->set_runner(runner_.get());
  return absl::OkStatus();
}

}  // namespace dsv4
