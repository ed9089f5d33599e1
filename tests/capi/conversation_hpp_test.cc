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

TEST_CASE("hpp: a conversation in turns") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat(engine);
  REQUIRE_ERROR(chat.Next(), DSV4_ERR_INVALID_ARGUMENT, "");
  chat.Append({DSV4_ROLE_USER, kQuestion});
  CHECK(chat.finish() == DSV4_FINISH_NONE);
  CHECK(TextOf(chat) == kAnswer);
  CHECK(chat.finish() == DSV4_FINISH_STOP);
  CHECK(chat.message_count() == 2);
  CHECK(chat.reply_json().find(kAnswer) != std::string::npos);
  CHECK_FALSE(chat.Next().has_value());  // the turn is over
  CHECK(TextOf(chat).empty());

  chat.AppendJson(R"([{"role": "user", "content": "What is the capital of Italy?"}])");
  CHECK(chat.session().stats().cached_tokens > 0);
  CHECK(TextOf(chat) == "The capital of Italy is Rome.");
  CHECK(chat.message_count() == 4);
  chat.Truncate(1);
  dsv4::Conversation moved = std::move(chat);
  CHECK(TextOf(moved) == kAnswer);
  REQUIRE_ERROR(chat.Step(), DSV4_ERR_INVALID_ARGUMENT, "session is NULL");
  REQUIRE_ERROR(moved.Truncate(9), DSV4_ERR_INVALID_ARGUMENT, "9");
}

TEST_CASE("hpp: a turn's events may be left and taken up again") {
  const dsv4::Engine engine = OpenBundled();
  const std::vector<dsv4::Message> messages = {{DSV4_ROLE_SYSTEM, "You are a friendly assistant."},
                                               {DSV4_ROLE_USER, kQuestion}};
  dsv4::Conversation chat(engine, messages);
  std::string text;
  for (const dsv4::Event& event : chat.events()) {
    text += event.text;
    if (text.size() > 5) break;
  }
  dsv4::Conversation fork = chat.Fork();
  const std::string rest = TextOf(chat);
  CHECK(rest.size() > 5);
  CHECK(TextOf(fork) == rest);
  dsv4::Conversation whole(engine, messages);
  CHECK(text + rest == TextOf(whole));
}

TEST_CASE("hpp: a fork has the events that were not taken") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat(engine, {{DSV4_ROLE_USER, kQuestion}});
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
  dsv4::Conversation chat(engine);
  chat.Append({DSV4_ROLE_USER, kQuestion});
  const dsv4::StepResult step = chat.Step();
  CHECK(step.token >= 0);
  CHECK(step.finish == DSV4_FINISH_NONE);
  CHECK_FALSE(step.text.empty());
  chat.Truncate(0);
  CHECK_FALSE(chat.Poll().has_value());
  chat.Append({DSV4_ROLE_USER, kQuestion});
  CHECK(TextOf(chat) == kAnswer);
}

TEST_CASE("hpp: reasoning, and a turn that is ended") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::ChatOptions options;
  options.thinking = DSV4_THINKING_HIGH;
  dsv4::Conversation chat = dsv4::Conversation::FromJson(
      engine, R"([{"role": "user", "content": "Calculate 91 + 49."}])", options);
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
  CHECK(chat.message_count() == 2);

  // The same conversation without thinking from here on.
  chat.SetChatOptions({});
  chat.Append({DSV4_ROLE_USER, kQuestion});
  for (const dsv4::Event& event : chat.events()) CHECK(event.type != DSV4_PARSER_REASONING);
}

TEST_CASE("hpp: a call of a tool and its result") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Message system{DSV4_ROLE_SYSTEM, "You are a friendly assistant."};
  system.tools = kTools;
  dsv4::Conversation chat(engine, {system, {DSV4_ROLE_USER, "Turn off the light in the hall."}});
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
  chat.Append(result);
  CHECK(TextOf(chat).find("light") != std::string::npos);
}

TEST_CASE("hpp: conversations in one pass, listed and edited") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation first(engine, {{DSV4_ROLE_USER, kQuestion}});
  dsv4::Conversation second(engine, {{DSV4_ROLE_USER, "Hello"}});
  second.ReplaceJson(0, 1, R"([{"role": "user", "content": "no question"}])");
  second.Replace(0, 1, {{DSV4_ROLE_USER, kQuestion}});
  CHECK(second.messages_json() == first.messages_json());
  CHECK(second.messages_json(1) == "[]");
  while (first.finish() == DSV4_FINISH_NONE) {
    for (const dsv4::StepOutcome& outcome : dsv4::StepConversations(engine, {&first, &second}))
      CHECK_FALSE(outcome.failure);
  }
  CHECK(second.finish() == DSV4_FINISH_STOP);
  CHECK(TextOf(first) == kAnswer);
  CHECK(TextOf(second) == kAnswer);
  CHECK(dsv4::StepConversations(engine, {&first}).at(0).failure);  // it has no turn

  first.Append({DSV4_ROLE_USER, kQuestion});
  first.session().Stop();
  CHECK_THROWS_AS(first.Step(), dsv4::Error);
  first.session().Resume();
  CHECK_FALSE(TextOf(first).empty());
}

TEST_CASE("hpp: an exception of a mask ends a turn's iteration; the next one continues") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Conversation chat(engine, {{DSV4_ROLE_USER, kQuestion}});
  chat.session().Prefill();
  chat.session().SetTokenMask(
      [](dsv4::Span<const int32_t>, int64_t, dsv4::AllowedTokens&) -> bool { throw Surprise{4}; });
  CHECK_THROWS_AS(TextOf(chat), Surprise);
  chat.session().SetTokenMask(nullptr);
  CHECK(TextOf(chat) == kAnswer);
}

}  // namespace
