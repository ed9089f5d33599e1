// SPDX-License-Identifier: Apache-2.0
// One answer that is being generated: a session, and a mailbox for the tokens that the scheduler's
// thread steps it to.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "examples/dsv4-server/kept_sessions.h"

namespace server {

class Scheduler;

// The prompt of a generation and its parameters.
struct Prompt {
  // A JSON array; empty: `tokens` count.
  std::string messages = {};
  dsv4::ChatOptions chat = {};
  std::vector<int32_t> tokens = {};
  bool prompt_log_probs = false;  // of `tokens`
  dsv4::Sampling sampling = {};
  uint64_t cache_salt = 0;
  std::string continues = {};  // the answer whose kept session may have computed some of it; or ""
  std::string keep_as = {};    // the session is kept under this id when its turn has ended
};

// One token of the answer.
struct Token {
  int32_t id = -1;
  std::string text = {};                              // of a session on tokens
  std::vector<dsv4::Event> events = {};               // of one on messages
  std::optional<dsv4::LogProbs> log_probs = {};       // if the sampling asks for them
  std::vector<dsv4::LogProbs> prompt_log_probs = {};  // with the first token, from position 1 on
  dsv4_finish finish = DSV4_FINISH_NONE;
};

// The session belongs to the scheduler's thread. Other functions may be called by any thread.
class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens the session, or continues a kept one, with a seed of its own. Throws the library's
  // errors.
  // - begin: when its request came.
  // - notify: called by the scheduler's thread when there is something to take.
  Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
             Clock::time_point begin, std::function<void()> notify, KeptSessions* kept = nullptr);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Statistics of the prompt; after the last token, of everything.
  dsv4::SessionStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  // The next token, if there is one. After the last one: throws the exception that ended the
  // generation, if one did.
  std::optional<Token> Take();
  // Nobody wants further tokens: cancels what is being computed.
  void Stop();
  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  // For the scheduler's thread.
  dsv4::Session& session() { return chat_ ? chat_->session() : *plain_; }
  static void AddEvent(void* generation, const dsv4_parser_event* event) noexcept;
  // Takes the token of the session's step. False if it is the last one.
  bool Deliver(const dsv4_step_result& result);
  void Fail(std::exception_ptr failure);
  // Closes the session, or gives it to `kept` if its turn has ended and the prompt says so. Tokens
  // can still be taken.
  void Close(KeptSessions* kept);
  const std::string& keep_as() const { return keep_as_; }

  const Clock::time_point begin;

 private:
  void Put(Token token);

  std::optional<dsv4::Conversation> chat_;
  std::optional<dsv4::Session> plain_;
  bool log_probs_, prompt_log_probs_;
  const std::string keep_as_;
  const uint64_t cache_salt_;
  bool complete_ = false;  // the turn has ended by itself
  size_t prompt_tokens_ = 0;
  std::vector<dsv4::Event> events_;  // of the token that is being stepped to
  std::exception_ptr lost_event_;
  const std::function<void()> notify_;

  mutable std::mutex mutex_;
  std::deque<Token> mailbox_;
  std::exception_ptr failure_;
  dsv4::SessionStats stats_;
  bool open_ = true, stopped_ = false;
};

}  // namespace server
