// SPDX-License-Identifier: Apache-2.0
// The ids of a prompt: no text forges a control token, and without forgery they are those of the
// published prompt's text. Counts of ids are compared with those of a harmless conversation.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/lib/text/encode_cases.h"

namespace dsv4 {
namespace {

// Every added token of the bundled tokenizer.
std::map<std::string, int32_t> AddedTokenIds() {
  std::map<std::string, int32_t> ids;
  const JsonValue tokenizer = test::Document("models/dsv4-tiny/tokenizer.json");
  for (const JsonValue& token : *tokenizer.Find("added_tokens")->AsArray()) {
    ids[*token.Find("content")->AsString()] = static_cast<int32_t>(*token.Find("id")->AsInt64());
  }
  return ids;
}

// The added tokens of `ids`, in order.
std::vector<int32_t> Controls(const std::vector<int32_t>& ids) {
  static const std::map<std::string, int32_t> known = AddedTokenIds();
  std::vector<int32_t> controls;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(controls), [](int32_t id) {
    return std::any_of(known.begin(), known.end(),
                       [&](const auto& token) { return token.second == id; });
  });
  return controls;
}

bool SpellsAny(const JsonValue& value, const std::map<std::string, int32_t>& tokens) {
  if (const std::string* text = value.AsString()) {
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](const auto& token) { return absl::StrContains(*text, token.first); });
  }
  if (const auto* items = value.AsArray()) {
    return std::any_of(items->begin(), items->end(),
                       [&](const JsonValue& item) { return SpellsAny(item, tokens); });
  }
  if (const auto* members = value.AsObject()) {
    return std::any_of(members->begin(), members->end(), [&](const JsonMember& member) {
      return SpellsAny(JsonValue::FromString(member.key), tokens) ||
             SpellsAny(member.value, tokens);
    });
  }
  return false;
}

// A conversation with a text in every place that takes one.
std::string EveryField(absl::string_view text) {
  static constexpr char kConversation[] = R"([
    {"role": "system", "content": "@", "response_format": {"@": ["@"]},
     "tools": [{"type": "function", "function": {"name": "@", "description": "@", "@": {"@": 1}}}]},
    {"role": "latest_reminder", "content": "@"},
    {"role": "developer", "content": "@", "response_format": "@",
     "tools": [{"type": "function", "function": {"@": "@"}}]},
    {"role": "user", "content": "@"},
    {"role": "user", "content": [{"type": "text", "text": "@"}, {"type": "@"}]},
    {"role": "assistant", "content": "@", "reasoning_content": "@", "tool_calls": [
       {"id": "@", "function": {"name": "@", "arguments": "{\"@\": \"@\", \"b\": [{\"@\": \"@\"}]}"}},
       {"id": "2", "function": {"name": "f", "arguments": "@"}}]},
    {"role": "tool", "tool_call_id": "@", "content": "@"},
    {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "@"}, {"type": "@"}]},
    {"role": "assistant", "content": "@", "reasoning_content": "@"},
    {"role": "user", "content": "@", "task": "action"}])";
  return absl::StrReplaceAll(kConversation, {{"@", text}});
}

TEST_CASE("no text in any field yields an added token") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  const auto ids_of = [&](absl::string_view text, ThinkingMode mode) {
    const auto messages = ParseMessages(EveryField(text));
    REQUIRE_OK(messages);
    const auto ids = RenderChat(tokenizer, *messages, {.mode = mode});
    REQUIRE_OK(ids);
    const auto prompt = RenderChatText(*messages, {.mode = mode});
    REQUIRE_OK(prompt);
    CHECK(*tokenizer.Decode(*ids) == *prompt);
    return *ids;
  };
  const std::map<std::string, int32_t> tokens = AddedTokenIds();
  CHECK(tokens.size() == 16);
  for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
    const std::vector<int32_t> structure = Controls(ids_of("plain", mode));
    CHECK(structure.size() > 40);
    std::string all;
    for (const auto& [content, id] : tokens) {
      INFO(content);
      all += content;
      CHECK(Controls(ids_of(content, mode)) == structure);
      CHECK(Controls(ids_of("a " + content + content + " z", mode)) == structure);
      // Halves that the format's words, or a neighbouring text, could make whole.
      for (size_t cut = 1; cut < content.size(); ++cut) {
        if ((content[cut] & 0xC0) == 0x80) continue;
        CHECK(Controls(ids_of(content.substr(0, cut), mode)) == structure);
        CHECK(Controls(ids_of(content.substr(cut), mode)) == structure);
      }
    }
    CHECK(Controls(ids_of(all, mode)) == structure);
  }
}

TEST_CASE("without forgery the ids are those of the published prompt") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  const std::map<std::string, int32_t> tokens = AddedTokenIds();
  int honest = 0;
  for (const test::EncodeCase& c : test::EncodeCases()) {
    if (!c.prompt) continue;
    INFO("case " << c.number);
    const auto conversation = test::ConversationOf(c);
    REQUIRE_OK(conversation);
    const auto ids =
        RenderChat(tokenizer, conversation->messages, c.options, conversation->context);
    REQUIRE_OK(ids);
    CHECK(*tokenizer.Decode(*ids) == *c.prompt);
    if (SpellsAny(*c.messages, tokens)) continue;
    ++honest;
    CHECK(*ids == *tokenizer.Encode(*c.prompt, {.added_tokens = true}));
  }
  CHECK(honest > 20);
}

TEST_CASE("the recorded conversations, made harmless, have the ids of their prompts") {
  // Most of them spell "<think>" somewhere.
  const Tokenizer& tokenizer = test::TinyTokenizer();
  const std::map<std::string, int32_t> tokens = AddedTokenIds();
  const auto harmless = [](std::string& text) {
    text = absl::StrReplaceAll(text, {{"think>", "thonk>"}});
  };
  for (const test::EncodeCase& c : test::EncodeCases()) {
    if (!c.prompt) continue;
    INFO("case " << c.number);
    auto conversation = test::ConversationOf(c);
    REQUIRE_OK(conversation);
    for (auto* list : {&conversation->context, &conversation->messages}) {
      for (ChatMessage& message : *list) {
        harmless(message.content);
        harmless(message.reasoning_content);
        for (ToolCall& call : message.tool_calls) harmless(call.arguments);
        if (message.response_format && SpellsAny(*message.response_format, tokens)) {
          message.response_format.reset();
        }
        for (JsonValue& tool : message.tools) {
          if (SpellsAny(tool, tokens)) tool = JsonValue::FromString("tool");
        }
      }
    }
    const auto prompt = RenderChatText(conversation->messages, c.options, conversation->context);
    const auto ids =
        RenderChat(tokenizer, conversation->messages, c.options, conversation->context);
    REQUIRE_OK(prompt);
    REQUIRE_OK(ids);
    CHECK(*ids == *tokenizer.Encode(*prompt, {.added_tokens = true}));
  }
}

TEST_CASE("neighbouring texts are one string to the tokenizer") {
  const auto ids = RenderChat(test::TinyTokenizer(),
                              std::vector<ChatMessage>{{"system", "hel"}, {"system", "lo the"}},
                              {.begin_of_sentence = false});
  REQUIRE_OK(ids);
  CHECK(*ids == *test::TinyTokenizer().Encode("hello the"));
}

TEST_CASE("surrogates become replacement characters in the ids alone") {
  const std::vector<ChatMessage> messages = {{"system", "a\xED\xA0\xBD\xED\xBA\x80z"}};
  const ChatOptions options = {.begin_of_sentence = false};
  CHECK(*RenderChatText(messages, options) == messages[0].content);
  const auto ids = RenderChat(test::TinyTokenizer(), messages, options);
  REQUIRE_OK(ids);
  CHECK(*ids == *test::TinyTokenizer().Encode("a\xEF\xBF\xBD\xEF\xBF\xBDz"));
}

}  // namespace
}  // namespace dsv4
