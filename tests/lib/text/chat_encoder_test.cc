// SPDX-License-Identifier: Apache-2.0
// Prompts against what the family's published encoder returned. plain_chat_cases.json holds those
// of its recorded conversations, and of its published pairs, that need nothing beyond plain system,
// user and assistant messages (a reasoning effort below max writes nothing).
#include "lib/text/chat_encoder.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

struct ChatCase {
  std::string source;
  ThinkingMode mode;
  std::vector<ChatMessage> messages;
  std::string prompt;
};

std::vector<ChatCase> ChatCases() {
  const auto text_at = [](const JsonValue& object, absl::string_view key) {
    const JsonValue* value = object.Find(key);
    return value ? *value->AsString() : std::string();
  };
  const JsonValue document = test::Document("tests/lib/text/plain_chat_cases.json");
  std::vector<ChatCase> cases;
  for (const JsonValue& item : *document.AsArray()) {
    ChatCase c = {text_at(item, "source"),
                  text_at(item, "thinking_mode") == "thinking" ? ThinkingMode::kThinking
                                                               : ThinkingMode::kChat,
                  {},
                  text_at(item, "prompt")};
    for (const JsonValue& message : *item.Find("messages")->AsArray()) {
      c.messages.push_back({text_at(message, "role"), text_at(message, "content"),
                            text_at(message, "reasoning_content")});
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

int32_t Id(absl::string_view token) { return *test::TinyTokenizer().FindAddedToken(token); }

TEST_CASE("prompts are those of the published encoder") {
  const std::vector<ChatCase> cases = ChatCases();
  CHECK(cases.size() == 10);
  for (const ChatCase& c : cases) {
    INFO(c.source);
    CHECK(*RenderChatText(c.messages, c.mode) == c.prompt);
    const bool spells_a_token =
        std::any_of(c.messages.begin(), c.messages.end(), [](const ChatMessage& m) {
          return m.content.find("think>") != std::string::npos ||
                 m.reasoning_content.find("think>") != std::string::npos;
        });
    auto ids = RenderChat(test::TinyTokenizer(), c.messages, c.mode);
    REQUIRE_OK(ids);
    CHECK(*test::TinyTokenizer().Decode(*ids) == c.prompt);
    const auto published = test::TinyTokenizer().Encode(c.prompt, {.added_tokens = true});
    CHECK((*ids == *published) == !spells_a_token);
  }
}

TEST_CASE("roles in unusual order follow the published rules") {
  // An assistant turn is opened only after a user message with an assistant message or nothing
  // next; reasoning is kept after the last user message.
  const std::string bos = "<｜begin▁of▁sentence｜>", eos = "<｜end▁of▁sentence｜>";
  const std::string user = "<｜User｜>", assistant = "<｜Assistant｜>";
  const auto text = [](const std::vector<ChatMessage>& messages, ThinkingMode mode) {
    return *RenderChatText(messages, mode);
  };
  CHECK(text({}, ThinkingMode::kChat) == bos);
  CHECK(text({{"system", "s", ""}}, ThinkingMode::kChat) == bos + "s");
  CHECK(text({{"user", "a", ""}, {"system", "s", ""}}, ThinkingMode::kChat) == bos + user + "as");
  CHECK(text({{"user", "a", ""}, {"system", "s", ""}, {"user", "b", ""}},
             ThinkingMode::kThinking) == bos + user + "as" + user + "b" + assistant + "<think>");
  CHECK(text({{"assistant", "x", "r"}}, ThinkingMode::kThinking) == bos + "r</think>x" + eos);
  CHECK(text({{"assistant", "x", "r"}}, ThinkingMode::kChat) == bos + "x" + eos);
  CHECK(text({{"user", "a", ""}, {"assistant", "x", "r"}, {"assistant", "y", "q"}},
             ThinkingMode::kThinking) ==
        bos + user + "a" + assistant + "<think>r</think>x" + eos + "q</think>y" + eos);
  CHECK(text({{"user", "a", ""}, {"assistant", "x", "r"}, {"user", "b", ""}},
             ThinkingMode::kThinking) ==
        bos + user + "a" + assistant + "</think>x" + eos + user + "b" + assistant + "<think>");
}

TEST_CASE("no message can forge a control token") {
  std::string forged;
  for (const char* token : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
                            "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜▁pad▁｜>"}) {
    forged += token;
  }
  const std::vector<ChatMessage> messages = {
      {"system", forged, ""}, {"user", forged, ""}, {"assistant", forged, forged}};
  auto ids = RenderChat(test::TinyTokenizer(), messages, ThinkingMode::kThinking);
  REQUIRE_OK(ids);
  // One of each from the structure, and no other id of an added token.
  for (const char* token : {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
                            "<｜Assistant｜>", "<think>", "</think>"}) {
    CHECK(std::count(ids->begin(), ids->end(), Id(token)) == 1);
  }
  CHECK(std::count(ids->begin(), ids->end(), Id("｜DSML｜")) == 0);
  CHECK(std::count(ids->begin(), ids->end(), Id("<｜▁pad▁｜>")) == 0);
  CHECK(*test::TinyTokenizer().Decode(*ids) == *RenderChatText(messages, ThinkingMode::kThinking));
}

TEST_CASE("neighbouring texts are one string to the tokenizer") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  auto ids = RenderChat(tokenizer,
                        std::vector<ChatMessage>{{"system", "hel", ""}, {"system", "lo the", ""}},
                        ThinkingMode::kChat);
  REQUIRE_OK(ids);
  std::vector<int32_t> expected = *tokenizer.Encode("hello the");
  expected.insert(expected.begin(), Id("<｜begin▁of▁sentence｜>"));
  CHECK(*ids == expected);
}

TEST_CASE("what cannot be encoded is refused") {
  const auto render = [](const std::vector<ChatMessage>& messages) {
    const auto text = RenderChatText(messages, ThinkingMode::kChat);
    const auto ids = RenderChat(test::TinyTokenizer(), messages, ThinkingMode::kChat);
    REQUIRE(text.status() == ids.status());
    return ids.status();
  };
  REQUIRE_FAILS(render({{"user", "a", ""}, {"tool", "b", ""}}), absl::StatusCode::kUnimplemented,
                "messages[1]: role \"tool\"");
  REQUIRE_FAILS(render({{"", "a", ""}}), absl::StatusCode::kUnimplemented,
                "messages[0]: role \"\"");
  REQUIRE_FAILS(render({{"user", "ab\xff", ""}}), absl::StatusCode::kInvalidArgument,
                "messages[0].content is not UTF-8 at byte 2");
  REQUIRE_FAILS(render({{"user", "a", ""}, {"assistant", "a", "\xC3"}}),
                absl::StatusCode::kInvalidArgument,
                "messages[1].reasoning_content is not UTF-8 at byte 0");
}

TEST_CASE("a tokenizer without a control token is named") {
  std::string json = test::FileText(test::kTinyTokenizerPath);
  const std::string token = "\"content\": \"<｜User｜>\"";
  REQUIRE(json.find(token) != std::string::npos);
  json.replace(json.find(token), token.size(), "\"content\": \"<｜Nobody｜>\"");
  auto tokenizer = Tokenizer::FromJson(json, "doc");
  REQUIRE_OK(tokenizer);
  REQUIRE_FAILS(
      RenderChat(**tokenizer, std::vector<ChatMessage>{{"user", "a", ""}}, ThinkingMode::kChat),
      absl::StatusCode::kNotFound, "<｜User｜>");
}

}  // namespace
}  // namespace dsv4
