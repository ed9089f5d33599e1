// SPDX-License-Identifier: Apache-2.0
// Sessions of answers that clients may continue. A request that does gets a fork, which has
// computed the conversation so far. They are dropped, the oldest first, when their place or their
// part of the cache is needed; then the conversation is computed again, as far as the prefix cache
// lacks it.
#pragma once

#include <dsv4/dsv4.hpp>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>

namespace server {

// Any thread. Sessions are closed without the lock.
class KeptSessions {
 public:
  explicit KeptSessions(size_t most) : most_(most) {}

  void Put(std::string id, dsv4::Conversation chat, uint64_t cache_salt);
  // The session of the answer `id`, synced to `messages`, JSON. Nothing if it is not there or they
  // are refused.
  std::optional<dsv4::Conversation> Continue(const std::string& id, const std::string& messages,
                                             const dsv4::ChatOptions& options,
                                             const dsv4::Sampling& sampling, uint64_t cache_salt);
  // Takes the oldest one out, for the caller to close.
  std::optional<dsv4::Conversation> TakeOldest();
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  struct Entry {
    std::string id;
    dsv4::Conversation chat;
    uint64_t cache_salt;
  };

  const size_t most_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the oldest first
};

}  // namespace server
