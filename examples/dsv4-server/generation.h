// SPDX-License-Identifier: Apache-2.0
// One answer that is being generated: a request to the library's queue, and a mailbox for the
// tokens that come from there.
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

namespace server {

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

// All functions may be called by any thread.
class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens the session, or continues a kept one, with a seed of its own. Throws the library's
  // errors.
  // - begin: when its request came.
  // - notify: called by the queue's thread when there is something to take.
  Generation(const dsv4::Engine& engine, const Prompt& prompt, uint64_t seed,
             Clock::time_point begin, std::function<void()> notify, dsv4::KeptConversations* kept);
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

  // For the scheduler. Puts it into the queue, once. `group`: that of its request; 0: a new one.
  void Submit(dsv4::Queue* queue, uint64_t group, std::function<void(dsv4::QueueEvent)> on_event);
  uint64_t group() const {
    const std::lock_guard lock(mutex_);
    return group_;
  }
  void Put(dsv4::QueueEvent event);
  void Fail(std::exception_ptr failure);
  // Keeps the conversation of a complete turn if the prompt says so.
  void Keep(std::optional<dsv4::Conversation> chat, dsv4::KeptConversations* kept) const;
  const std::string& keep_as() const { return keep_as_; }

  const Clock::time_point begin;
  Clock::time_point last_token = {};  // the queue's thread's

 private:
  const std::string keep_as_;
  const uint64_t cache_salt_;
  const std::function<void()> notify_;

  mutable std::mutex mutex_;
  dsv4::QueueRequest request_;  // until it is submitted
  std::deque<Token> mailbox_;
  std::exception_ptr failure_;
  dsv4::SessionStats stats_;
  dsv4::Queue* queue_ = nullptr;
  uint64_t ticket_ = 0, group_ = 0;
  bool stopped_ = false;
};

}  // namespace server
