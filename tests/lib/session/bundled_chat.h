// SPDX-License-Identifier: Apache-2.0
// Conversations with the bundled model. Questions, answers and tool calls are those of
// models/dsv4-tiny/gates.json; what a timeline must spell is the published encoder's prompt of the
// same messages.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/session/conversation.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "tests/lib/text/event_log.h"
#include "tests/support/bundled_model.h"

namespace dsv4::test {

using Kind = ParserEvent::Kind;
using Messages = std::vector<ChatMessage>;

inline constexpr ChatOptions kChat = {.mode = ThinkingMode::kChat};
inline constexpr ChatOptions kThinking = {.mode = ThinkingMode::kThinking};
inline constexpr ChatOptions kKeeping = {.mode = ThinkingMode::kThinking, .drop_thinking = false};

inline ChatMessage User(const std::string& text) { return {.role = "user", .content = text}; }

inline const ChatMessage kPolite = {.role = "system", .content = "You are a friendly assistant."};

struct Turn {
  EventLog log;
  std::vector<int32_t> tokens;
  Finish finish = Finish::kNone;
};

// An engine with one session and a conversation on it.
class Chat {
 public:
  explicit Chat(Messages messages, const ChatOptions& options = kChat,
                const SamplingParams& sampling = {}, int64_t context_tokens = 2048)
      : engine_(OpenBundled({.context_tokens = context_tokens,
                             .max_sessions = 2,
                             .threads = 2,
                             .max_draft_tokens = sampling.draft_tokens})),
        session_(OpenSession(engine_, sampling)),
        options_(options) {
    auto created = Conversation::Create(session_.get());
    REQUIRE_OK(created);
    conversation_ = *std::move(created);
    REQUIRE_OK(conversation_->Sync(std::move(messages), options_));
  }

  Conversation& operator*() { return *conversation_; }
  Conversation* operator->() { return conversation_.get(); }
  Session& session() { return *session_; }
  const Tokenizer& tokenizer() { return **engine_->tokenizer(); }

  void Step(Turn* turn) {
    const auto add = [&](const ParserEvent& event) { turn->log.Add(event); };
    const absl::StatusOr<StepResult> step = conversation_->Step(add);
    REQUIRE_OK(step);
    turn->tokens.push_back(step->token);
    turn->finish = step->finish;
  }

  // Steps to the end of the turn, or for `steps` tokens.
  Turn Generate(int steps = 400) {
    Turn turn;
    while (turn.finish == Finish::kNone && steps-- > 0) Step(&turn);
    return turn;
  }

  // Syncs to the messages so far, a turn that is being generated included, and `more`.
  absl::Status Append(Messages more) {
    conversation_->EndTurn([](const ParserEvent&) {});
    const absl::Span<const ChatMessage> before = conversation_->messages();
    Messages all(before.begin(), before.end());
    all.insert(all.end(), more.begin(), more.end());
    return conversation_->Sync(std::move(all), options_).status();
  }
  // Syncs to the first `count` messages.
  absl::Status Truncate(size_t count) {
    const absl::Span<const ChatMessage> kept = conversation_->messages().first(count);
    return conversation_->Sync(Messages(kept.begin(), kept.end()), options_).status();
  }
  absl::Status SetOptions(const ChatOptions& options) {
    const ChatOptions before = std::exchange(options_, options);
    const absl::Status synced = Append({});
    if (!synced.ok()) options_ = before;
    return synced;
  }

  // The whole answer to `messages`.
  Turn Ask(Messages messages) {
    REQUIRE_OK(Append(std::move(messages)));
    Turn turn = Generate();
    REQUIRE(turn.finish == Finish::kStop);
    return turn;
  }

  std::vector<int32_t> Tokens() const {
    const absl::Span<const int32_t> tokens = session_->tokens();
    return {tokens.begin(), tokens.end()};
  }
  std::string Spelled() { return tokenizer().Decode(session_->tokens()).value(); }
  std::string Published(const ChatOptions& options) {
    return RenderChatText(conversation_->messages(), options).value();
  }
  bool Contains(absl::Span<const int32_t> part) {
    const absl::Span<const int32_t> all = session_->tokens();
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Conversation> conversation_;
  ChatOptions options_;
};

// gates.json, tool_call-88: two calls.
inline constexpr absl::string_view kWeather = R"([{"role": "system",
  "content": "You are a helpful assistant. Answer briefly.", "tools": [
  {"type": "function", "function": {"name": "multiply", "description": "Multiply two numbers",
    "parameters": {"type": "object", "properties": {
      "a": {"type": "integer", "description": "First number"},
      "b": {"type": "integer", "description": "Second number"}}, "required": ["a", "b"]}}},
  {"type": "function", "function": {"name": "weather_lookup",
    "description": "Get the weather for a city", "parameters": {"type": "object", "properties": {
      "city": {"type": "string", "description": "The city name"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "send_message",
    "description": "Send a message to a person", "parameters": {"type": "object", "properties": {
      "name": {"type": "string", "description": "The receiver"},
      "message": {"type": "string", "description": "The text"}},
      "required": ["name", "message"]}}}]},
 {"role": "user", "content": "Weather for Ulaanbaatar and in Jakarta?"}])";

}  // namespace dsv4::test
