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
#include "lib/grammar/grammar.h"
#include "lib/runtime/conversation.h"
#include "lib/runtime/engine.h"
#include "lib/runtime/session.h"
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

class HeldSampling;

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

// The caller's token mask. The session's own mask calls it.
struct TokenMaskCall {
  dsv4_token_mask_fn fn;
  void* user;
};

}  // namespace dsv4::capi

struct dsv4_session {
  ~dsv4_session();  // in session.cc, which knows HeldSampling

  std::unique_ptr<const dsv4::capi::HeldSampling> sampling;  // the parameters in effect
  dsv4_grammar grammar;                                      // the grammar in effect, or null
  std::shared_ptr<dsv4::capi::TokenMaskCall> mask;           // outlives `session`; null: no mask
  std::unique_ptr<dsv4::Session> session;
  std::unique_ptr<dsv4::Conversation> conversation;  // on `session`; null unless opened on messages
  mutable dsv4::capi::SessionUse use;
};

namespace dsv4::capi {

// Opens an empty session with the caller's options. `name`: the name of the argument `options`, for
// error messages.
absl::StatusOr<std::unique_ptr<dsv4_session>> OpenSession(dsv4_engine* engine,
                                                          const dsv4_session_options* options,
                                                          absl::string_view name);

// Runs `body` with exclusive use of the session, or returns Busy. Afterwards updates the handle's
// grammar, which `body` may have changed.
template <class Body>
absl::Status WithExclusive(dsv4_session* handle, Body&& body) {
  if (handle == nullptr) return InvalidValue("session", " is NULL");
  if (!handle->use.TryEnterExclusive())
    return WithArgument(Busy("session is in use by another call"), "session");
  struct Leave {
    dsv4_session* handle;
    ~Leave() {
      handle->grammar.grammar = handle->session->sampling().grammar;
      handle->use.LeaveExclusive();
    }
  } leave{handle};
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
