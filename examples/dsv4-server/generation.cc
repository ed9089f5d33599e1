// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/generation.h"

#include <new>
#include <utility>

namespace server {

Generation::Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
                       Clock::time_point came, std::function<void()> notify, KeptSessions* kept)
    : begin(came),
      log_probs_(prompt.sampling.log_probs > 0),
      prompt_log_probs_(prompt.prompt_log_probs),
      keep_as_(prompt.keep_as),
      cache_salt_(prompt.cache_salt),
      notify_(std::move(notify)) {
  dsv4::SessionOptions options;
  options.sampling = prompt.sampling;
  options.sampling.seed = seed;
  options.cache_salt = prompt.cache_salt;
  if (kept != nullptr && !prompt.continues.empty()) {
    chat_ = kept->Continue(prompt.continues, prompt.messages, prompt.chat, options.sampling,
                           prompt.cache_salt);
  }
  if (chat_) {
    // It has the prompt.
  } else if (!prompt.messages.empty()) {
    chat_.emplace(engine, options);
    chat_->SyncJson(prompt.messages, prompt.chat);
  } else {
    plain_.emplace(engine, options);
    dsv4::SyncOptions sync;
    if (prompt_log_probs_ && prompt.tokens.size() > 1) sync = {1, prompt.sampling.log_probs};
    plain_->Sync(prompt.tokens, sync);
  }
  stats_ = session().stats();
  prompt_tokens_ = session().tokens().size();
}

std::optional<Token> Generation::Take() {
  const std::lock_guard lock(mutex_);
  if (mailbox_.empty()) {
    if (failure_) std::rethrow_exception(failure_);
    return std::nullopt;
  }
  Token token = std::move(mailbox_.front());
  mailbox_.pop_front();
  return token;
}

void Generation::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (open_) session().Stop();
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
  complete_ = result.finish != DSV4_FINISH_NONE;
  Put(std::move(token));
  return result.finish == DSV4_FINISH_NONE;
}

void Generation::Put(Token token) {
  const dsv4::SessionStats stats = session().stats();
  {
    const std::lock_guard lock(mutex_);
    stats_ = stats;
    mailbox_.push_back(std::move(token));
  }
  if (notify_) notify_();
}

void Generation::Fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  if (notify_) notify_();
}

void Generation::Close(KeptSessions* kept) {
  std::optional<dsv4::Conversation> chat;
  std::optional<dsv4::Session> plain;
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    chat.swap(chat_);
    plain.swap(plain_);
  }
  if (!chat || !complete_ || keep_as_.empty()) return;
  try {
    kept->Put(keep_as_, std::move(*chat), cache_salt_);
  } catch (const std::bad_alloc&) {
    // It is computed again.
  }
}

}  // namespace server
