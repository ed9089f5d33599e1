// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/generation.h"

#include <utility>

namespace server {

Generation::Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
                       Clock::time_point came)
    : begin(came),
      log_probs_(prompt.sampling.log_probs > 0),
      prompt_log_probs_(prompt.prompt_log_probs) {
  dsv4::SessionOptions options;
  options.sampling = prompt.sampling;
  options.sampling->seed = seed;
  options.cache_salt = prompt.cache_salt;
  if (!prompt.messages.empty()) {
    chat_ = dsv4::Conversation::FromJson(engine, prompt.messages, prompt.chat, options);
  } else {
    plain_.emplace(engine, options);
    dsv4::SyncOptions sync;
    if (prompt_log_probs_ && prompt.tokens.size() > 1) sync = {1, prompt.sampling.log_probs};
    plain_->Sync(prompt.tokens, sync);
  }
  stats_ = session().stats();
  prompt_tokens_ = session().tokens().size();
}

Token Generation::Next(const std::function<bool()>& client_is_gone) {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  do {
    if (client_is_gone()) throw ClientGone();
  } while (!arrived_.wait_for(lock, 50ms, [&] { return !mailbox_.empty() || failure_; }));
  if (mailbox_.empty()) std::rethrow_exception(failure_);
  Token token = std::move(mailbox_.front());
  mailbox_.pop_front();
  return token;
}

void Generation::AddEvent(void* generation, const dsv4_parser_event* event) noexcept {
  auto* self = static_cast<Generation*>(generation);
  dsv4::detail::EventSink sink{&self->events_};
  dsv4::detail::EventSink::Add(&sink, event);
  if (sink.thrown) self->lost_event_ = sink.thrown;
}

bool Generation::Deliver(const dsv4_step_result& result) {
  if (lost_event_) std::rethrow_exception(lost_event_);
  if (result.token < 0) return true;
  Token token;
  token.id = result.token;
  token.finish = result.finish;
  if (plain_) token.text.assign(result.text, result.text_length);
  token.events = std::exchange(events_, {});
  const auto count = static_cast<int64_t>(session().tokens().size());
  if (log_probs_) token.log_probs = session().log_probs(count - 1);
  if (prompt_log_probs_) {
    for (size_t i = 1; i < prompt_tokens_; ++i)
      token.prompt_log_probs.push_back(session().log_probs(static_cast<int64_t>(i)));
    prompt_log_probs_ = false;
  }
  Put(std::move(token));
  return result.finish == DSV4_FINISH_NONE;
}

void Generation::Put(Token token) {
  const dsv4::SessionStats stats = session().stats();
  const std::lock_guard lock(mutex_);
  stats_ = stats;
  mailbox_.push_back(std::move(token));
  arrived_.notify_one();
}

void Generation::Fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  arrived_.notify_one();
}

}  // namespace server
