// SPDX-License-Identifier: Apache-2.0
//
// A session: one sequence of tokens and its KV cache, used by one thread at a time.
#ifndef DSV4_SESSION_HPP_
#define DSV4_SESSION_HPP_

#include <dsv4/session.h>
#include <dsv4/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// Options of a session, with the fields of dsv4_session_options.
struct SessionOptions {
  std::optional<Sampling> sampling = {};  // none: the model's defaults
  uint64_t cache_salt = 0;                // sessions share prefixes only within a salt
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
  std::exception_ptr failure = nullptr;  // an Error, or the exception of the session's token mask
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

// The set of tokens that may be chosen next. Initially all.
class AllowedTokens {
 public:
  // Wraps the words of a dsv4_token_mask_fn.
  explicit AllowedTokens(Span<uint32_t> words) : words_(words) {}

  // True if the token may be chosen.
  bool allows(int32_t token) const noexcept { return (word(token) & bit(token)) != 0; }
  // Allows the token.
  void Allow(int32_t token) noexcept { word(token) |= bit(token); }
  // Forbids the token.
  void Forbid(int32_t token) noexcept { word(token) &= ~bit(token); }
  // Forbids all tokens. Tokens can be allowed again afterwards.
  void ForbidAll() noexcept {
    for (uint32_t& word : words_) word = 0;
  }

  // Token t is bit t % 32 of word t / 32.
  Span<uint32_t> words() const noexcept { return words_; }

 private:
  uint32_t& word(int32_t token) const noexcept {
    return words_[static_cast<std::size_t>(token) / 32];
  }
  static uint32_t bit(int32_t token) noexcept { return uint32_t{1} << (token % 32); }

  Span<uint32_t> words_;
};

// Restricts the token that follows `tokens`. The first `prompt_tokens` of them are the prompt. The
// mask must depend on the arguments only. Returning false cancels the step, which also rethrows
// exceptions. Must not use the session.
using TokenMask =
    std::function<bool(Span<const int32_t> tokens, int64_t prompt_tokens, AllowedTokens& allowed)>;

namespace detail {

// A session's TokenMask and the exception that it threw during a call.
struct MaskCall {
  std::shared_ptr<const TokenMask> mask;  // a fork has the same one
  std::exception_ptr thrown = nullptr;

  static int32_t Run(void* user, const int32_t* tokens, std::size_t count, int64_t prompt_tokens,
                     uint32_t* words, std::size_t word_count) noexcept {
    auto* self = static_cast<MaskCall*>(user);
    try {
      AllowedTokens allowed(Span<uint32_t>(words, word_count));
      return (*self->mask)(Span<const int32_t>(tokens, count), prompt_tokens, allowed) ? 0 : 1;
    } catch (...) {
      self->thrown = std::current_exception();
      return 1;
    }
  }
};

inline StepResult TakeStep(const dsv4_step_result& result) {
  return {result.token, result.finish, std::string(result.text, result.text_length)};
}

struct Pass;

}  // namespace detail

// <dsv4/session.h> documents threads and errors of each function.
class Session {
 public:
  // Opens an empty session of `engine`.
  explicit Session(const Engine& engine, const SessionOptions& options = {}) {
    Open(options, [&](const dsv4_session_options* view, dsv4_session** session) {
      detail::Call(dsv4_session_open, engine.get(), view, session);
    });
  }

  // Opens a copy of the session.
  Session Fork() {
    dsv4_session* fork = nullptr;
    detail::Call(dsv4_session_fork, handle_.get(), &fork);
    Session result(fork);
    if (mask_) result.SetMask(mask_->mask);
    return result;
  }

  // Sets the parameters from the next token on.
  void SetSampling(const Sampling& sampling) {
    const detail::SamplingView view(sampling);
    detail::Call(dsv4_session_set_sampling, handle_.get(), view.get());
  }

  // The parameters in effect.
  Sampling sampling() const {
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    detail::Call(dsv4_session_get_sampling, handle_.get(), &sampling);
    return detail::SamplingOf(sampling);
  }

  // Sets the token mask from the next token on. An empty one removes it. Forks share it and may
  // call it concurrently.
  void SetTokenMask(TokenMask mask) {
    SetMask(mask ? std::make_shared<const TokenMask>(std::move(mask)) : nullptr);
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
    CallMasked(dsv4_session_step, &result);
    return detail::TakeStep(result);
  }

  // Cancels the running prefill or step (DSV4_ERR_CANCELLED). Any thread may call it.
  void Cancel() noexcept { dsv4_session_cancel(handle_.get()); }
  // Also cancels every later prefill and step, until Resume(). Any thread may call it.
  void Stop() noexcept { dsv4_session_stop(handle_.get()); }
  // Undoes Stop().
  void Resume() noexcept { dsv4_session_resume(handle_.get()); }

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
  friend struct detail::Pass;

  explicit Session(dsv4_session* session) noexcept : handle_(session) {}
  Session() noexcept = default;

  // open(options, &session)
  template <class Function>
  void Open(const SessionOptions& options, Function&& open) {
    std::optional<detail::SamplingView> sampling;
    if (options.sampling) sampling.emplace(*options.sampling);
    dsv4_session_options view = DSV4_SESSION_OPTIONS_INIT;
    view.sampling = sampling ? sampling->get() : nullptr;
    view.cache_salt = options.cache_salt;
    dsv4_session* session = nullptr;
    open(&view, &session);
    handle_.reset(session);
  }

  void SetMask(std::shared_ptr<const TokenMask> mask) {
    std::unique_ptr<detail::MaskCall> call;
    if (mask) call.reset(new detail::MaskCall{std::move(mask)});
    detail::Call(dsv4_session_set_token_mask, handle_.get(),
                 call ? &detail::MaskCall::Run : nullptr, static_cast<void*>(call.get()));
    mask_ = std::move(call);
  }

  // Makes a call that may run the token mask.
  template <class Function, class... Arguments>
  void CallMasked(Function function, Arguments... arguments) {
    std::exception_ptr none;
    detail::CallBack(mask_ ? mask_->thrown : none, function, handle_.get(), arguments...);
  }

  std::unique_ptr<detail::MaskCall> mask_;
  detail::Handle<dsv4_session, dsv4_session_close> handle_;
};

namespace detail {

// Steps `sessions`; step(handles, count, results, statuses, errors) makes the call.
struct Pass {
  template <class Function>
  static std::vector<StepOutcome> Run(Span<Session* const> sessions, Function&& step) {
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
    step(handles.data(), count, result_list.data(), statuses.data(), errors.data());
    for (std::size_t i = 0; i < count; ++i) {
      const auto& mask = sessions[i]->mask_;
      if (statuses[i] == DSV4_OK)
        outcomes[i].result = TakeStep(results[i]);
      else
        outcomes[i].failure = std::make_exception_ptr(TakeError(statuses[i], errors[i]));
      if (mask && mask->thrown) outcomes[i].failure = std::exchange(mask->thrown, nullptr);
    }
    return outcomes;
  }
};

}  // namespace detail

// Steps distinct sessions of `engine` in one pass, as dsv4_engine_step does. The token is -1 while
// a prompt is pending.
inline std::vector<StepOutcome> StepAll(const Engine& engine, Span<Session* const> sessions) {
  return detail::Pass::Run(sessions, [&](auto... arguments) {
    detail::Call(dsv4_engine_step, engine.get(), arguments...);
  });
}

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_SESSION_HPP_
