// SPDX-License-Identifier: Apache-2.0
//
// A session: one sequence of tokens and its KV cache, used by one thread at a time.
#ifndef DSV4_SESSION_HPP_
#define DSV4_SESSION_HPP_

#include <dsv4/conversation.h>
#include <dsv4/session.h>
#include <dsv4/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// Options of a session, with the fields of dsv4_session_options.
struct SessionOptions {
  Sampling sampling = {};
  uint64_t cache_salt = 0;  // sessions share prefixes only within a salt
};

// Options of a sync, with the fields of dsv4_sync_options.
struct SyncOptions {
  int64_t log_probs_begin = 0;
  int32_t log_probs_count = 0;
};

using SyncResult = dsv4_sync_result;
using SessionStats = dsv4_session_stats;

// A new token and the text that it completes.
struct StepResult {
  int32_t token = -1;
  dsv4_finish finish = DSV4_FINISH_NONE;
  std::string text = {};
};

// The result of one session when several are stepped at once: a StepResult or an error.
struct StepOutcome {
  StepResult result = {};
  std::exception_ptr failure = nullptr;  // an Error
};

// A token and its natural log-probability.
struct TokenLogProb {
  int32_t token;
  float log_prob;
};

// Natural log-probabilities at one position.
struct LogProbs {
  float log_prob = 0;                  // of the session's token
  std::vector<TokenLogProb> top = {};  // the most likely tokens, most likely first
};

// A set of tokens for Session::SetAllowed. Initially all.
class AllowedTokens {
 public:
  // All of `vocab_size` tokens (EngineInfo::vocab_size).
  explicit AllowedTokens(int32_t vocab_size)
      : words_((static_cast<std::size_t>(vocab_size) + 31) / 32, ~uint32_t{0}) {}

  // True if the token may be chosen.
  bool allows(int32_t token) const noexcept { return (words_[word(token)] & bit(token)) != 0; }
  // Allows the token.
  void Allow(int32_t token) noexcept { words_[word(token)] |= bit(token); }
  // Forbids the token.
  void Forbid(int32_t token) noexcept { words_[word(token)] &= ~bit(token); }
  // Forbids all tokens. Tokens can be allowed again afterwards.
  void ForbidAll() noexcept {
    for (uint32_t& word : words_) word = 0;
  }

  // Token t is bit t % 32 of word t / 32.
  Span<const uint32_t> words() const noexcept { return {words_.data(), words_.size()}; }

 private:
  static std::size_t word(int32_t token) noexcept { return static_cast<std::size_t>(token) / 32; }
  static uint32_t bit(int32_t token) noexcept { return uint32_t{1} << (token % 32); }

  std::vector<uint32_t> words_;
};

class Session;
class Conversation;

namespace detail {

inline StepResult TakeStep(const dsv4_step_result& result) {
  return {result.token, result.finish, std::string(result.text, result.text_length)};
}

inline std::vector<StepOutcome> StepSessions(const Engine& engine, Span<Session* const> sessions,
                                             dsv4_parser_event_fn callback, void* const* users);

}  // namespace detail

// <dsv4/session.h> documents threads and errors of each function.
class Session {
 public:
  // Opens an empty session of `engine`.
  explicit Session(const Engine& engine, const SessionOptions& options = {}) {
    const detail::SamplingView sampling(options.sampling);
    dsv4_session_options view = DSV4_SESSION_OPTIONS_INIT;
    view.sampling = sampling.get();
    view.cache_salt = options.cache_salt;
    dsv4_session* session = nullptr;
    detail::Call(dsv4_session_open, engine.get(), &view, &session);
    handle_.reset(session);
  }

  // Opens a copy of the session.
  Session Fork() {
    dsv4_session* fork = nullptr;
    detail::Call(dsv4_session_fork, handle_.get(), &fork);
    return Session(fork);
  }

  // Sets the parameters from the next token on.
  void SetSampling(const Sampling& sampling) {
    const detail::SamplingView view(sampling);
    detail::Call(dsv4_session_set_sampling, handle_.get(), view.get());
  }

  // Restricts the next token to a set. Drafts pause meanwhile.
  void SetAllowed(const AllowedTokens& allowed) { SetAllowed(allowed.words()); }
  // The same with words as in AllowedTokens::words(). An empty list removes the restriction.
  void SetAllowed(Span<const uint32_t> words) {
    detail::Call(dsv4_session_set_allowed, handle_.get(), words.data(), words.size());
  }

  // Sets the session's tokens to `tokens`. Reuses the KV rows of the common prefix.
  SyncResult Sync(Span<const int32_t> tokens, const SyncOptions& options = {}) {
    dsv4_sync_options view = DSV4_SYNC_OPTIONS_INIT;
    view.log_probs_begin = options.log_probs_begin;
    view.log_probs_count = options.log_probs_count;
    SyncResult result = DSV4_SYNC_RESULT_INIT;
    detail::Call(dsv4_session_sync, handle_.get(), tokens.data(), tokens.size(), &view, &result);
    return result;
  }

  // Truncates the session to its first `position` tokens. Returns the number of tokens that will be
  // computed again.
  int64_t Rewind(int64_t position) {
    int64_t pending = 0;
    detail::Call(dsv4_session_rewind, handle_.get(), position, &pending);
    return pending;
  }

  // Computes up to `max_tokens` pending tokens (0 = all). Returns the number of tokens left.
  int64_t Prefill(int64_t max_tokens = 0, const Progress& progress = nullptr) {
    detail::ProgressCall call(progress);
    int64_t pending = 0;
    detail::CallBack(call.thrown, dsv4_session_prefill, handle_.get(), max_tokens, call.function(),
                     call.user(), &pending);
    return pending;
  }

  // Computes the pending tokens and chooses one token.
  StepResult Step() {
    dsv4_step_result result = DSV4_STEP_RESULT_INIT;
    detail::Call(dsv4_session_step, handle_.get(), nullptr, nullptr, &result);
    return detail::TakeStep(result);
  }

  // Cancels the running prefill or step (DSV4_ERR_CANCELLED) and every later one, until
  // Resume(). Any thread may call it.
  void Stop() noexcept { dsv4_session_set_stopped(handle_.get(), 1); }
  // Undoes Stop().
  void Resume() noexcept { dsv4_session_set_stopped(handle_.get(), 0); }

  // The session's tokens, a view that lives until the next non-const call.
  Span<const int32_t> tokens() const {
    const int32_t* tokens = nullptr;
    std::size_t count = 0;
    detail::Call(dsv4_session_get_tokens, handle_.get(), &tokens, &count);
    return {tokens, count};
  }

  // Log-probabilities at `position`, if Sampling or SyncOptions asked for them.
  LogProbs log_probs(int64_t position) const {
    constexpr std::size_t kMost = 20;
    int32_t tokens[kMost];
    float log_probs[kMost];
    std::size_t count = 0;
    LogProbs result;
    detail::Call(dsv4_session_get_log_probs, handle_.get(), position, &result.log_prob, &tokens[0],
                 &log_probs[0], kMost, &count);
    for (std::size_t i = 0; i < count && i < kMost; ++i)
      result.top.push_back({tokens[i], log_probs[i]});
    return result;
  }

  // Saves the session to a file, which appears once it is complete.
  void Save(const std::string& path, const Progress& progress = nullptr) const {
    detail::ProgressCall call(progress);
    detail::CallBack(call.thrown, dsv4_session_save, handle_.get(), path.c_str(), call.function(),
                     call.user());
  }
  // Saves the session to memory.
  std::vector<uint8_t> SaveMemory() const {
    return detail::ReadAll<std::vector<uint8_t>>(
        0, [&](uint8_t* data, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_session_save_memory, handle_.get(), data, capacity, needed);
        });
  }

  // Loads a saved session. Throws and leaves the session unchanged on failure.
  void Load(const std::string& path, const Progress& progress = nullptr) {
    detail::ProgressCall call(progress);
    detail::CallBack(call.thrown, dsv4_session_load, handle_.get(), path.c_str(), call.function(),
                     call.user());
  }
  // Loads a saved session from memory.
  void LoadMemory(Span<const uint8_t> data) {
    detail::Call(dsv4_session_load_memory, handle_.get(), data.data(), data.size());
  }

  // Statistics since the last sync.
  SessionStats stats() const {
    SessionStats stats = DSV4_SESSION_STATS_INIT;
    detail::Call(dsv4_session_get_stats, handle_.get(), &stats);
    return stats;
  }

  // The C handle.
  dsv4_session* get() const noexcept { return handle_.get(); }

 private:
  friend class Conversation;
  friend std::vector<StepOutcome> detail::StepSessions(const Engine& engine,
                                                       Span<Session* const> sessions,
                                                       dsv4_parser_event_fn callback,
                                                       void* const* users);

  explicit Session(dsv4_session* session) noexcept : handle_(session) {}
  Session() noexcept = default;

  detail::Handle<dsv4_session, dsv4_session_close> handle_;
};

namespace detail {

// Calls dsv4_engine_step. `callback` and `users`: see there.
inline std::vector<StepOutcome> StepSessions(const Engine& engine, Span<Session* const> sessions,
                                             dsv4_parser_event_fn callback, void* const* users) {
  const std::size_t count = sessions.size();
  std::vector<dsv4_session*> handles;
  std::vector<dsv4_step_result> results(count, dsv4_step_result DSV4_STEP_RESULT_INIT);
  std::vector<dsv4_step_result*> result_list;
  std::vector<dsv4_status> statuses(count);
  std::vector<dsv4_error*> errors(count);
  std::vector<StepOutcome> outcomes(count);
  for (std::size_t i = 0; i < count; ++i) {
    handles.push_back(sessions[i] != nullptr ? sessions[i]->get() : nullptr);
    result_list.push_back(&results[i]);
  }
  Call(dsv4_engine_step, engine.get(), handles.data(), count, callback, users, result_list.data(),
       statuses.data(), errors.data());
  for (std::size_t i = 0; i < count; ++i) {
    if (statuses[i] == DSV4_OK)
      outcomes[i].result = TakeStep(results[i]);
    else
      outcomes[i].failure = std::make_exception_ptr(TakeError(statuses[i], errors[i]));
  }
  return outcomes;
}

}  // namespace detail

// Steps distinct sessions of `engine` in one pass, as dsv4_engine_step does. The token is -1 while
// a prompt is pending.
inline std::vector<StepOutcome> StepAll(const Engine& engine, Span<Session* const> sessions) {
  return detail::StepSessions(engine, sessions, nullptr, nullptr);
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_SESSION_HPP_
