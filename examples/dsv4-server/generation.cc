// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/generation.h"

#include <new>
#include <utility>

namespace server {
namespace {

// The kept conversation that the prompt continues, synced to it. Nothing if it is not there or
// refuses.
std::optional<dsv4::Conversation> Continue(const Prompt& prompt, const dsv4::Sampling& sampling,
                                           dsv4::KeptConversations* kept) {
  try {
    std::optional<dsv4::Conversation> fork = kept->Fork(prompt.continues, prompt.cache_salt);
    if (!fork) return fork;
    fork->session().SetSampling(sampling);
    fork->SyncJson(prompt.messages, prompt.chat);
    return fork;
  } catch (const dsv4::Error& error) {
    // What is wrong with the prompt, opening it says.
    if (error.code() == DSV4_ERR_DEVICE_LOST) throw;
    return std::nullopt;
  }
}

}  // namespace

Generation::Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
                       Clock::time_point came, std::function<void()> notify,
                       dsv4::KeptConversations* kept)
    : begin(came),
      keep_as_(prompt.keep_as),
      cache_salt_(prompt.cache_salt),
      notify_(std::move(notify)) {
  dsv4::SessionOptions options;
  options.sampling = prompt.sampling;
  options.sampling.seed = seed;
  options.cache_salt = prompt.cache_salt;
  request_.sampling.log_probs = prompt.sampling.log_probs;
  std::optional<dsv4::Conversation>& chat = request_.conversation;
  if (!prompt.continues.empty()) chat = Continue(prompt, options.sampling, kept);
  if (chat) {
    // It has the prompt.
  } else if (!prompt.messages.empty()) {
    chat.emplace(engine, options);
    chat->SyncJson(prompt.messages, prompt.chat);
  } else {
    request_.session.emplace(engine, options);
    if (prompt.prompt_log_probs && prompt.tokens.size() > 1)
      request_.sync = {1, prompt.sampling.log_probs};
    request_.session->Sync(prompt.tokens, request_.sync);
  }
  stats_ = (chat ? chat->session() : *request_.session).stats();
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
  if (queue_ != nullptr) queue_->Cancel(ticket_);
}

void Generation::Submit(dsv4::Queue* queue, uint64_t group,
                        std::function<void(dsv4::QueueEvent)> on_event) {
  const std::lock_guard lock(mutex_);
  request_.group = group;
  request_.on_event = std::move(on_event);
  ticket_ = queue->Submit(std::move(request_));
  group_ = group != 0 ? group : ticket_;
  queue_ = queue;
  if (stopped_) queue_->Cancel(ticket_);
}

void Generation::Put(dsv4::QueueEvent event) {
  Token token;
  token.id = event.step.token;
  token.finish = event.step.finish;
  token.text = std::move(event.step.text);
  token.events = std::move(event.events);
  token.log_probs = std::move(event.log_probs);
  token.prompt_log_probs = std::move(event.prompt_log_probs);
  {
    const std::lock_guard lock(mutex_);
    stats_ = event.stats;
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

void Generation::Keep(std::optional<dsv4::Conversation> chat, dsv4::KeptConversations* kept) const {
  if (!chat || keep_as_.empty()) return;
  try {
    kept->Put(keep_as_, std::move(*chat), cache_salt_);
  } catch (const std::bad_alloc&) {
    // It is computed again.
  }
}

}  // namespace server
