// SPDX-License-Identifier: Apache-2.0
// Bounds the memory of all grammars of one vocabulary, which an engine has. Compiled grammars hold
// their part until they are destroyed; caches of states and masks are freed for others, those first
// that were not used for longest.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace dsv4::grammar {

// Memory of the grammars of an engine: one with everything that it may have, and 64 MiB.
inline constexpr int64_t kMaxGrammarsBytes = int64_t{256} << 20;

// Any thread.
class MemoryBudget {
 public:
  // What can be freed. A derived class calls Remove in its destructor.
  class Cache {
   public:
    Cache(const Cache&) = delete;
    Cache& operator=(const Cache&) = delete;

   protected:
    explicit Cache(std::shared_ptr<MemoryBudget> budget) : budget_(std::move(budget)) {}
    ~Cache() = default;
    // The cache has so many bytes and was used now. Frees others if all have too many. The caller
    // may hold what TryFree tries to lock.
    void Used(int64_t bytes);
    // Used, without waiting for other threads, and without freeing.
    void UsedNow(int64_t bytes);
    void Remove();

   private:
    friend class MemoryBudget;
    // Frees the cache; false if a thread uses it.
    virtual bool TryFree() = 0;

    const std::shared_ptr<MemoryBudget> budget_;
    // Guarded by the budget's mutex.
    int64_t bytes_ = 0;
    std::list<Cache*> node_{this};  // its place in the budget's list, unless it is there
    const std::list<Cache*>::iterator place_ = node_.begin();
  };

  // Bytes that are never freed for others.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share();

   private:
    friend class MemoryBudget;
    std::shared_ptr<MemoryBudget> budget_;
    int64_t bytes_ = 0;
  };

  explicit MemoryBudget(int64_t most) : most_(most) {}

  // Frees caches for it. Errors: OutOfHostMemory if the shares leave too little.
  static absl::StatusOr<Share> Reserve(const std::shared_ptr<MemoryBudget>& budget, int64_t bytes);
  // Bytes of shares and caches, as they were when they were used last.
  int64_t used() const;

 private:
  void FreeOldest(const Cache* except) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Cache* cache) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(Cache* cache, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t most_;
  mutable Mutex mutex_;
  std::list<Cache*> caches_ ABSL_GUARDED_BY(mutex_);  // used last first
  int64_t shares_ ABSL_GUARDED_BY(mutex_) = 0, cached_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dsv4::grammar
