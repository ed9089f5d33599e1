// SPDX-License-Identifier: Apache-2.0
//
// Conversations that are kept after their turn, for hosts with more of them than sessions.
#ifndef DSV4_KEPT_CONVERSATIONS_HPP_
#define DSV4_KEPT_CONVERSATIONS_HPP_

#include <dsv4/conversation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace dsv4 {
inline namespace cpp {

// Conversations that may continue, by name. They give up their place when a request needs it, the
// oldest first, and are then computed again as far as the prefix cache lacks them. Threads: any.
class KeptConversations {
 public:
  // Keeps up to `most`.
  explicit KeptConversations(std::size_t most) : most_(most) {}

  // Keeps a conversation, in place of the one with this name.
  void Put(std::string name, Conversation conversation, uint64_t cache_salt) {
    std::list<Entry> dropped;
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto next = std::next(at);
      if (at->name == name) dropped.splice(dropped.end(), entries_, at);
      at = next;
    }
    entries_.push_back({std::move(name), std::move(conversation), cache_salt});
    while (entries_.size() > most_) dropped.splice(dropped.end(), entries_, entries_.begin());
  }

  // Takes out the conversation of this name and salt, if there is one.
  std::optional<Conversation> Take(const std::string& name, uint64_t cache_salt) {
    const std::lock_guard lock(mutex_);
    const auto at = Find(name, cache_salt);
    if (at == entries_.end()) return std::nullopt;
    std::optional<Conversation> taken(std::move(at->conversation));
    entries_.erase(at);
    return taken;
  }

  // A copy of the conversation of this name and salt, if there is one.
  std::optional<Conversation> Fork(const std::string& name, uint64_t cache_salt) {
    const std::lock_guard lock(mutex_);
    const auto at = Find(name, cache_salt);
    if (at == entries_.end()) return std::nullopt;
    return at->conversation.Fork();
  }

  // Closes the oldest one but for `other`. False if there is none.
  bool DropOldest(const std::string& other = {}) {
    std::list<Entry> dropped;
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return other.empty() || entry.name != other;
    });
    if (at == entries_.end()) return false;
    dropped.splice(dropped.end(), entries_, at);
    return true;
  }

  // The number of conversations.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  // A conversation and its name.
  struct Entry {
    std::string name;
    Conversation conversation;
    uint64_t cache_salt;
  };

  std::list<Entry>::iterator Find(const std::string& name, uint64_t cache_salt) {
    return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.name == name && entry.cache_salt == cache_salt;
    });
  }

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the oldest first
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_KEPT_CONVERSATIONS_HPP_
