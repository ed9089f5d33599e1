// SPDX-License-Identifier: Apache-2.0
// One answer that is being generated: a session, and a mailbox for the tokens that the scheduler's
// thread steps it to.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace server {

class Scheduler;

// Thrown to end a request whose client has disconnected.
struct ClientGone {};

// What is to be continued, and how.
struct Prompt {
  // A JSON array; empty: `tokens` count.
  std::string messages = {};
  dsv4::ChatOptions chat = {};
  std::vector<int32_t> tokens = {};
  bool prompt_log_probs = false;  // of `tokens`
  dsv4::Sampling sampling = {};
  uint64_t cache_salt = 0;
};

// One token of the answer.
struct Token {
  int32_t id = -1;
  std::string text = {};                              // of a session on tokens
  std::vector<dsv4::Event> events = {};               // of one on messages
  std::optional<dsv4::LogProbs> log_probs = {};       // where the sampling asks for them
  std::vector<dsv4::LogProbs> prompt_log_probs = {};  // with the first token, from position 1 on
  dsv4_finish finish = DSV4_FINISH_NONE;
};

// Used by the thread of its request; the functions for the scheduler say so.
class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens the session, with a seed of its own. `begin`: when its request came. Throws the library's
  // errors.
  Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
             Clock::time_point begin);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Of the prompt, and of all when the last token has been taken.
  dsv4::SessionStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  // The next token, for which it waits; not to be called after the last. Throws ClientGone, and
  // what has ended the generation.
  Token Next(const std::function<bool()>& client_is_gone);

  // For the scheduler's thread.
  dsv4::Session& session() { return chat_ ? chat_->session() : *plain_; }
  static void AddEvent(void* generation, const dsv4_parser_event* event) noexcept;
  // Takes the token that the session was stepped to. False when nothing is to follow.
  bool Deliver(const dsv4_step_result& result);
  void Fail(std::exception_ptr failure);

  const Clock::time_point begin;

 private:
  void Put(Token token);

  std::optional<dsv4::Conversation> chat_;
  std::optional<dsv4::Session> plain_;
  bool log_probs_, prompt_log_probs_;
  size_t prompt_tokens_ = 0;
  std::vector<dsv4::Event> events_;  // of the token that is being stepped to
  std::exception_ptr lost_event_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Token> mailbox_;
  std::exception_ptr failure_;
  dsv4::SessionStats stats_;
};

}  // namespace server
