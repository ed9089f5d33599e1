// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/memory_budget.h"

#include <utility>

#include "lib/base/error.h"

namespace dsv4::grammar {

void MemoryBudget::Cache::Used(int64_t bytes) {
  const MutexLock lock(&budget_->mutex_);
  budget_->Note(this, bytes);
  budget_->FreeOldest(this);
}

void MemoryBudget::Cache::UsedNow(int64_t bytes) {
  if (!budget_->mutex_.TryLock()) return;
  budget_->Note(this, bytes);
  budget_->mutex_.Unlock();
}

void MemoryBudget::Cache::Remove() {
  const MutexLock lock(&budget_->mutex_);
  budget_->Forget(this);
}

void MemoryBudget::Note(Cache* cache, int64_t bytes) {
  caches_.splice(caches_.begin(), cache->node_.empty() ? caches_ : cache->node_, cache->place_);
  cached_ += bytes - cache->bytes_;
  cache->bytes_ = bytes;
}

void MemoryBudget::Forget(Cache* cache) {
  if (!cache->node_.empty()) return;
  cached_ -= std::exchange(cache->bytes_, 0);
  cache->node_.splice(cache->node_.begin(), caches_, cache->place_);
}

void MemoryBudget::FreeOldest(const Cache* except) {
  for (auto place = caches_.end(); place != caches_.begin() && shares_ + cached_ > most_;) {
    Cache* cache = *--place;
    if (cache == except || !cache->TryFree()) continue;
    ++place;
    Forget(cache);
  }
}

absl::StatusOr<MemoryBudget::Share> MemoryBudget::Reserve(
    const std::shared_ptr<MemoryBudget>& budget, int64_t bytes) {
  const MutexLock lock(&budget->mutex_);
  if (bytes > budget->most_ - budget->shares_) {
    return OutOfHostMemory("the grammar has ", bytes >> 10, " KiB, and those that are open have ",
                           budget->shares_ >> 10, " KiB; all grammars of an engine have at most ",
                           budget->most_ >> 20, " MiB");
  }
  budget->shares_ += bytes;
  budget->FreeOldest(nullptr);
  Share share;
  share.budget_ = budget;
  share.bytes_ = bytes;
  return share;
}

MemoryBudget::Share::~Share() {
  if (budget_ == nullptr) return;
  const MutexLock lock(&budget_->mutex_);
  budget_->shares_ -= bytes_;
}

int64_t MemoryBudget::used() const {
  const MutexLock lock(&mutex_);
  return shares_ + cached_;
}

}  // namespace dsv4::grammar
