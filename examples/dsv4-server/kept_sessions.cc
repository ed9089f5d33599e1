// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/kept_sessions.h"

#include <utility>

namespace server {

void KeptSessions::Put(std::string id, dsv4::Conversation chat, uint64_t cache_salt) {
  std::list<Entry> dropped;
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({std::move(id), std::move(chat), cache_salt});
    while (entries_.size() > most_) dropped.splice(dropped.end(), entries_, entries_.begin());
  }
}

std::optional<dsv4::Conversation> KeptSessions::Continue(const std::string& id,
                                                         const std::string& messages,
                                                         const dsv4::ChatOptions& options,
                                                         const dsv4::Sampling& sampling,
                                                         uint64_t cache_salt) {
  std::optional<dsv4::Conversation> fork;
  {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_) {
      if (entry.id != id || entry.cache_salt != cache_salt) continue;
      try {
        fork = entry.chat.Fork();
      } catch (const dsv4::Error& error) {
        if (error.code() == DSV4_ERR_DEVICE_LOST) throw;
      }
    }
  }
  if (!fork) return fork;
  try {
    fork->session().Resume();
    fork->session().SetSampling(sampling);
    fork->SyncJson(messages, options);
  } catch (const dsv4::Error& error) {
    // What is wrong with the prompt, opening it says.
    if (error.code() == DSV4_ERR_DEVICE_LOST) throw;
    fork.reset();
  }
  return fork;
}

std::optional<dsv4::Conversation> KeptSessions::TakeOldest() {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return std::nullopt;
  std::optional<dsv4::Conversation> chat(std::move(entries_.front().chat));
  entries_.pop_front();
  return chat;
}

}  // namespace server
