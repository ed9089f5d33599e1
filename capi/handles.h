// SPDX-License-Identifier: Apache-2.0
// The structs behind the opaque handles of the C interface.
#pragma once

#include <dsv4/dsv4.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"
#include "lib/engine/engine.h"
#include "lib/grammar/grammar.h"
#include "lib/session/conversation.h"
#include "lib/session/session.h"
#include "lib/text/chat_message.h"
#include "lib/text/tokenizer.h"

struct dsv4_tokenizer {
  std::unique_ptr<const dsv4::Tokenizer> owned;  // null if an engine owns the tokenizer
  const dsv4::Tokenizer* tokenizer = nullptr;
  dsv4::ChatEncoder encoder = dsv4::ChatEncoder::kPreview;  // detected from the model folder
};

struct dsv4_engine {
  std::shared_ptr<dsv4::Engine> engine;
  dsv4_tokenizer tokenizer;  // `tokenizer.tokenizer` is null if the model folder has none
};

struct dsv4_grammar {
  std::shared_ptr<const dsv4::grammar::Grammar> grammar;
};

namespace dsv4::capi {

// Counts the calls on a session: one exclusive call, or any number of reading calls. Never waits.
class SessionUse {
 public:
  bool TryEnterExclusive() {
    int32_t idle = 0;
    return users_.compare_exchange_strong(idle, kExclusive, std::memory_order_acquire);
  }
  void LeaveExclusive() { users_.store(0, std::memory_order_release); }

  bool TryEnterReading() {
    int32_t users = users_.load(std::memory_order_relaxed);
    while (users != kExclusive) {
      if (users_.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }
  void LeaveReading() { users_.fetch_sub(1, std::memory_order_release); }

 private:
  static constexpr int32_t kExclusive = -1;
  std::atomic<int32_t> users_{0};
};

}  // namespace dsv4::capi

struct dsv4_session {
  std::unique_ptr<dsv4::Session> session;
  std::unique_ptr<dsv4::Conversation> conversation;  // on `session`; null until messages are synced
  mutable dsv4::capi::SessionUse use;
};

namespace dsv4::capi {

// Runs `body` with exclusive use of the session, or returns Busy.
template <class Body>
absl::Status WithExclusive(dsv4_session* handle, Body&& body) {
  if (handle == nullptr) return InvalidValue("session", " is NULL");
  if (!handle->use.TryEnterExclusive())
    return WithArgument(Busy("session is in use by another call"), "session");
  struct Leave {
    SessionUse& use;
    ~Leave() { use.LeaveExclusive(); }
  } leave{handle->use};
  return body(*handle->session);
}

// Runs `body` concurrently with other reading calls, or returns Busy.
template <class Body>
absl::Status WithReading(const dsv4_session* handle, Body&& body) {
  if (handle == nullptr) return InvalidValue("session", " is NULL");
  if (!handle->use.TryEnterReading())
    return WithArgument(Busy("session is in use by another call"), "session");
  struct Leave {
    SessionUse& use;
    ~Leave() { use.LeaveReading(); }
  } leave{handle->use};
  return body(static_cast<const Session&>(*handle->session));
}

}  // namespace dsv4::capi
