// SPDX-License-Identifier: Apache-2.0
// <dsv4/conversation.hpp>.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/hpp_expect.h"

namespace {

static_assert(!std::is_copy_constructible_v<dsv4::Conversation>);
static_assert(std::is_nothrow_move_constructible_v<dsv4::Conversation>);

std::string TextOf(dsv4::Conversation& chat) {
  std::string text;
  for (const dsv4::Event& event : chat.events()) {
    if (event.type == DSV4_PARSER_TEXT) text += event.text;
  }
  return text;
}

// tool_call-86 of models/dsv4-tiny/gates.json.
const char kTools[] =
    R"([{"type": "function", "function": {"name": "set_light", "description": "Switch a light on or off", "parameters": {"type": "object", "properties": {"room": {"type": "string", "description": "The room"}, "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}])";

// A conversation synced to `messages`.
dsv4::Conversation Open(const dsv4::Engine& engine, const std::vector<dsv4::Message>& messages) {
  dsv4::Conversation chat(engine);
  chat.Sync(messages);
  return chat;
}

TEST_CASE("hpp: a conversation in turns") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat(engine);
  REQUIRE_ERROR(chat.Next(), DSV4_ERR_INVALID_ARGUMENT, "not synced to messages");
  std::vector<dsv4::Message> messages = {{DSV4_ROLE_USER, kQuestion}};
  const int64_t pending = chat.Sync(messages).pending_tokens;
  CHECK(pending == chat.session().stats().prompt_tokens);
  CHECK(chat.finish() == DSV4_FINISH_NONE);
  CHECK(TextOf(chat) == kAnswer);
  CHECK(chat.finish() == DSV4_FINISH_STOP);
  CHECK(chat.reply().role == DSV4_ROLE_ASSISTANT);
  CHECK(chat.reply().content == kAnswer);
  CHECK(chat.reply_json().find(kAnswer) != std::string::npos);
  CHECK_FALSE(chat.Next().has_value());  // the turn is over
  CHECK(TextOf(chat).empty());

  const int64_t used = chat.session().stats().used_tokens;
  messages.push_back(chat.reply());
  messages.push_back({DSV4_ROLE_USER, "What is the capital of Italy?"});
  // All but the token that ended the turn, which was never computed.
  CHECK(chat.Sync(messages).reused_tokens == used - 1);
  CHECK(TextOf(chat) == "The capital of Italy is Rome.");
  messages.resize(1);
  chat.Sync(messages);
  dsv4::Conversation moved = std::move(chat);
  CHECK(TextOf(moved) == kAnswer);
  REQUIRE_ERROR(chat.Step(), DSV4_ERR_INVALID_ARGUMENT, "session is NULL");
}

TEST_CASE("hpp: a turn's events may be left and taken up again") {
  const dsv4::Engine engine = OpenBundled();
  const std::vector<dsv4::Message> messages = {{DSV4_ROLE_SYSTEM, "You are a friendly assistant."},
                                               {DSV4_ROLE_USER, kQuestion}};
  dsv4::Conversation chat = Open(engine, messages);
  std::string text;
  for (const dsv4::Event& event : chat.events()) {
    text += event.text;
    if (text.size() > 5) break;
  }
  dsv4::Conversation fork = chat.Fork();
  const std::string rest = TextOf(chat);
  CHECK(rest.size() > 5);
  CHECK(TextOf(fork) == rest);
  CHECK(fork.reply().content == text + rest);
  dsv4::Conversation whole = Open(engine, messages);
  CHECK(text + rest == TextOf(whole));
}

TEST_CASE("hpp: a fork has the events that were not taken") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat = Open(engine, {{DSV4_ROLE_USER, kQuestion}});
  for (int i = 0; i < 6; ++i) chat.Step();
  const std::optional<dsv4::Event> first = chat.Poll();
  REQUIRE(first.has_value());
  dsv4::Conversation fork = chat.Fork();
  const std::optional<dsv4::Event> second = chat.Poll(), forked = fork.Poll();
  REQUIRE(forked.has_value());
  CHECK_FALSE(second->text.empty());
  CHECK(forked->text == second->text);
  CHECK(first->text + second->text + TextOf(chat) == kAnswer);
  CHECK(first->text + second->text + TextOf(fork) == kAnswer);
}

TEST_CASE("hpp: what a turn left behind does not reach the next one") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat = Open(engine, {{DSV4_ROLE_USER, kQuestion}});
  const dsv4::StepResult step = chat.Step();
  CHECK(step.token >= 0);
  CHECK(step.finish == DSV4_FINISH_NONE);
  CHECK_FALSE(step.text.empty());
  chat.Sync({});
  CHECK_FALSE(chat.Poll().has_value());
  CHECK(chat.reply().content.empty());
  REQUIRE_ERROR(chat.reply_json(), DSV4_ERR_NOT_FOUND, "no reply");
  chat.Sync({{DSV4_ROLE_USER, kQuestion}});
  CHECK(TextOf(chat) == kAnswer);
}

TEST_CASE("hpp: reasoning, and a turn that is ended") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::ChatOptions options;
  options.thinking = DSV4_THINKING_HIGH;
  dsv4::Conversation chat(engine);
  chat.SyncJson(R"([{"role": "user", "content": "Calculate 91 + 49."}])", options);
  std::string reasoning, text;
  for (int i = 0; i < 6; ++i) chat.Step();
  while (const std::optional<dsv4::Event> event = chat.Poll()) {
    CHECK(event->type == DSV4_PARSER_REASONING);
    reasoning += event->text;
  }
  CHECK_FALSE(reasoning.empty());
  chat.EndTurn();
  std::optional<dsv4::Event> last;
  while (std::optional<dsv4::Event> event = chat.Next()) last = std::move(event);
  REQUIRE(last.has_value());
  CHECK(last->type == DSV4_PARSER_END);
  CHECK_FALSE(last->stopped);
  CHECK(chat.finish() == DSV4_FINISH_NONE);
  const dsv4::Message reply = chat.reply();
  CHECK(reply.reasoning.substr(0, reasoning.size()) == reasoning);
  CHECK(reply.content.empty());

  // The same conversation without thinking from here on.
  chat.Sync({{DSV4_ROLE_USER, "Calculate 91 + 49."}, reply, {DSV4_ROLE_USER, kQuestion}});
  for (const dsv4::Event& event : chat.events()) CHECK(event.type != DSV4_PARSER_REASONING);
}

TEST_CASE("hpp: a call of a tool and its result") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Message system{DSV4_ROLE_SYSTEM, "You are a friendly assistant."};
  system.tools = kTools;
  std::vector<dsv4::Message> messages = {system,
                                         {DSV4_ROLE_USER, "Turn off the light in the hall."}};
  dsv4::Conversation chat = Open(engine, messages);
  std::string name, id, arguments;
  bool ended = false;
  for (const dsv4::Event& event : chat.events()) {
    if (event.type == DSV4_PARSER_TOOL_CALL_START) {
      CHECK(event.call == 0);
      name = event.text;
      id = event.id;
    }
    if (event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS) arguments += event.text;
    if (event.type == DSV4_PARSER_END) ended = event.stopped;
  }
  CHECK(name == "set_light");
  CHECK(arguments == R"({"room": "hall", "on": false})");
  CHECK(id == "call_2_0");
  CHECK(ended);

  dsv4::Message result{DSV4_ROLE_TOOL, R"({"status": "ok"})"};
  result.tool_call_id = id;
  messages.push_back(chat.reply());
  REQUIRE(messages.back().tool_calls.size() == 1);
  CHECK(messages.back().tool_calls[0].arguments == arguments);
  messages.push_back(result);
  const int64_t used = chat.session().stats().used_tokens;
  CHECK(chat.Sync(messages).reused_tokens == used - 1);
  CHECK(TextOf(chat).find("light") != std::string::npos);
}

TEST_CASE("hpp: conversations in one pass") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation first = Open(engine, {{DSV4_ROLE_USER, kQuestion}});
  dsv4::Conversation second = Open(engine, {{DSV4_ROLE_USER, kQuestion}});
  while (first.finish() == DSV4_FINISH_NONE) {
    for (const dsv4::StepOutcome& outcome : dsv4::StepConversations(engine, {&first, &second}))
      CHECK_FALSE(outcome.failure);
  }
  CHECK(second.finish() == DSV4_FINISH_STOP);
  CHECK(TextOf(first) == kAnswer);
  CHECK(TextOf(second) == kAnswer);
  CHECK(dsv4::StepConversations(engine, {&first}).at(0).failure);  // it has no turn

  CHECK(second.reply().content == kAnswer);
  first.Sync({{DSV4_ROLE_USER, kQuestion}});
  first.session().Stop();
  CHECK_THROWS_AS(first.Step(), dsv4::Error);
  first.session().Resume();
  CHECK_FALSE(TextOf(first).empty());
}

}  // namespace
