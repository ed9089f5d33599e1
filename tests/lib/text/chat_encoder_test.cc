// SPDX-License-Identifier: Apache-2.0
// Prompts against what the family's published encoder returned (tests/oracle); what no recorded
// conversation shows is taken from that encoder's rules by hand. That no text forges a control
// token is chat_forgery_test.cc's.
#include "lib/text/chat_encoder.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/lib/text/encode_cases.h"
#include "tests/lib/text/large_conversation.h"

namespace dsv4 {
namespace {

constexpr char kBos[] = "<｜begin▁of▁sentence｜>";
const std::string kEos = "<｜end▁of▁sentence｜>", kUser = "<｜User｜>",
                  kAssistant = "<｜Assistant｜>";
const std::string kThink = "<think>", kThinkEnd = "</think>";
constexpr ChatOptions kChat = {.mode = ThinkingMode::kChat, .begin_of_sentence = false};
constexpr ChatOptions kThinking = {.mode = ThinkingMode::kThinking, .begin_of_sentence = false};

std::vector<ChatMessage> Messages(absl::string_view json) {
  auto messages = ParseMessages(json);
  REQUIRE_OK(messages);
  return *std::move(messages);
}

// Text of the conversation `json`, continuing `context`.
std::string Text(absl::string_view json, const ChatOptions& options,
                 absl::string_view context = "[]") {
  const auto text = RenderChatText(Messages(json), options, Messages(context));
  REQUIRE_OK(text);
  return *text;
}

// Checks the recorded cases: `prompts` of them are rendered, the others are refused.
void CheckCases(const std::vector<test::EncodeCase>& cases, int prompts) {
  for (const test::EncodeCase& c : cases) {
    INFO("case " << c.number);
    const auto conversation = test::ConversationOf(c);
    if (c.prompt) {
      --prompts;
      REQUIRE_OK(conversation);
      const auto text = RenderChatText(conversation->messages, c.options, conversation->context);
      REQUIRE_OK(text);
      CHECK(*text == *c.prompt);
      continue;
    }
    INFO(*c.error);
    absl::Status status = conversation.status();
    if (status.ok()) {
      status = RenderChatText(conversation->messages, c.options, conversation->context).status();
    }
    CHECK(status.code() == (*c.error == "NotImplementedError"
                                ? absl::StatusCode::kUnimplemented
                                : absl::StatusCode::kInvalidArgument));
    CHECK(status.message().find("messages[") == 0);
  }
  CHECK(prompts == 0);
}

TEST_CASE("prompts are those of the published encoders") {
  CHECK(test::EncodeCases().size() == 300);
  CheckCases(test::EncodeCases(), 268);
  CHECK(test::EncodeCases0731().size() == 200);
  CheckCases(test::EncodeCases0731(), 192);
}

TEST_CASE("the encoders have the recorded efforts, and refuse others") {
  const JsonValue document = test::RecordedDocument("encoding_cases_0731.json");
  const JsonValue& efforts = *document.Find("efforts");
  CHECK(efforts.AsObject()->size() == 3);
  for (const JsonMember& effort : *efforts.AsObject()) {
    INFO(effort.key);
    const auto known = EffortFromName(ChatEncoder::k0731, effort.key);
    REQUIRE_OK(known);
    CHECK(EffortPrompt(ChatEncoder::k0731, *known) == *effort.value.AsString());
  }
  CHECK(EffortPrompt(ChatEncoder::k0731, ReasoningEffort::kNone) == "");
  CHECK(EffortFromName(ChatEncoder::k0731, "").value() == ReasoningEffort::kNone);
  for (const JsonValue& refused : *document.Find("refused_efforts")->AsArray()) {
    REQUIRE_FAILS(EffortFromName(ChatEncoder::k0731, *refused.AsString()),
                  absl::StatusCode::kInvalidArgument, "low, high or max");
  }
  REQUIRE_FAILS(EffortFromName(ChatEncoder::kPreview, "low"), absl::StatusCode::kInvalidArgument,
                "\"low\"; expected high or max");
  // The preview's one text is the other's for high.
  for (const ReasoningEffort effort : {ReasoningEffort::kLow, ReasoningEffort::kHigh}) {
    CHECK(EffortPrompt(ChatEncoder::kPreview, effort) == "");
  }
  CHECK(EffortPrompt(ChatEncoder::kPreview, ReasoningEffort::kMax) ==
        *efforts.Find("high")->AsString());
}

TEST_CASE("the published pairs are equal") {
  for (int i = 1; i <= 4; ++i) {
    INFO("pair " << i);
    const std::string stem = "tests/oracle/encoding_published/test_";
    const JsonValue input = test::Document(absl::StrCat(stem, "input_", i, ".json"));
    // The first case has its tools next to the messages. They belong to message 0.
    const JsonValue* tools = input.Find("tools");
    auto messages = MessagesFromJson(tools ? *input.Find("messages") : input);
    REQUIRE_OK(messages);
    if (tools) messages->front().tools = *ToolsFromJson(*tools);
    const auto text =
        RenderChatText(*messages, {.mode = i == 4 ? ThinkingMode::kChat : ThinkingMode::kThinking});
    REQUIRE_OK(text);
    CHECK(*text == test::FileText(DSV4_SOURCE_DIR "/" + stem + absl::StrCat("output_", i, ".txt")));
  }
}

TEST_CASE("roles in unusual order follow the published rules") {
  CHECK(*RenderChatText({}, {}) == kBos);
  CHECK(Text(R"([{"role": "system", "content": "s"}])", {}) == kBos + std::string("s"));
  const std::string a = R"({"role": "user", "content": "a"})";
  const std::string b = R"({"role": "user", "content": "b"})";
  const std::string s = R"({"role": "system", "content": "s"})";
  const std::string x = R"({"role": "assistant", "content": "x", "reasoning_content": "r"})";
  const std::string y = R"({"role": "assistant", "content": "y", "reasoning_content": "q"})";
  const std::string d = R"({"role": "developer", "content": "d"})";
  const std::string l = R"({"role": "latest_reminder", "content": "l"})";
  const auto list = [](std::vector<std::string> items) {
    std::string json = "[";
    for (const std::string& item : items) absl::StrAppend(&json, json.size() > 1 ? "," : "", item);
    return json + "]";
  };
  CHECK(Text(list({a, s}), kChat) == kUser + "as");
  CHECK(Text(list({a, s, b}), kThinking) == kUser + "as" + kUser + "b" + kAssistant + kThink);
  CHECK(Text(list({x}), kThinking) == "r</think>x" + kEos);
  CHECK(Text(list({x}), kChat) == "x" + kEos);
  CHECK(Text(list({a, x, y}), kThinking) ==
        kUser + "a" + kAssistant + kThink + "r</think>x" + kEos + "q</think>y" + kEos);
  CHECK(Text(list({a, x, b}), kThinking) ==
        kUser + "a" + kAssistant + kThinkEnd + "x" + kEos + kUser + "b" + kAssistant + kThink);
  // A reminder opens the assistant's turn before it, as an answer would.
  CHECK(Text(list({a, l}), kThinking) ==
        kUser + "a" + kAssistant + kThink + "<｜latest_reminder｜>l");
  CHECK(Text(list({d, a}), kChat) == kUser + "d" + kUser + "a" + kAssistant + kThinkEnd);
  CHECK(Text(list({d, a}), kThinking) == kUser + "a" + kAssistant + kThink);
  CHECK(Text(list({a, d}), kThinking) == kUser + "a" + kUser + "d" + kAssistant + kThink);
  // An unknown role is an error only where it would be rendered.
  const std::string critic = R"({"role": "critic", "content": "c"})";
  CHECK(Text(list({critic, a}), kThinking) == kUser + "a" + kAssistant + kThink);
  REQUIRE_FAILS(RenderChatText(Messages(list({critic, a})), kChat),
                absl::StatusCode::kUnimplemented, "messages[0]: role \"critic\"");
  REQUIRE_FAILS(RenderChatText(Messages(list({a, critic})), kThinking),
                absl::StatusCode::kUnimplemented, "messages[1]: role \"critic\"");
}

TEST_CASE("a context is not rendered, but counts") {
  const std::string user = R"([{"role": "user", "content": "a"}])";
  const std::string answer = R"([{"role": "assistant", "content": "x", "reasoning_content": "r"}])";
  CHECK(Text(answer, kThinking, user) == "r</think>x" + kEos);
  CHECK(Text(user, {}, answer) == kUser + "a" + kAssistant + kThinkEnd);
  CHECK(Text(user, {}, "[]") == kBos + kUser + "a" + kAssistant + kThinkEnd);
  // Neither do its user messages join the new ones ...
  CHECK(Text(user, kChat, user) == kUser + "a" + kAssistant + kThinkEnd);
  // ... but its calls order the results, and its tools keep earlier reasoning.
  const std::string call = R"([{"role": "assistant", "content": "", "tools": [{"function": {}}],
      "tool_calls": [{"id": "p", "function": {"name": "f", "arguments": "{}"}},
                     {"id": "q", "function": {"name": "g", "arguments": "{}"}}]}])";
  CHECK(Text(R"([{"role": "tool", "tool_call_id": "q", "content": "2"},
                 {"role": "user", "content": "u"},
                 {"role": "tool", "tool_call_id": "p", "content": "1"},
                 {"role": "assistant", "content": "x", "reasoning_content": "r"},
                 {"role": "user", "content": "b"}])",
             kThinking, call) ==
        kUser + "<tool_result>1</tool_result>\n\nu\n\n<tool_result>2</tool_result>" + kAssistant +
            kThink + "r</think>x" + kEos + kUser + "b" + kAssistant + kThink);
  // A developer message that ends the context is dropped once a user message follows, but has been
  // counted: the published encoder then renders one message less.
  CHECK(Text(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}])",
             kThinking, R"([{"role": "developer", "content": "d"}])") == "</think>x" + kEos);
}

TEST_CASE("a task ends its turn, and what answers it has no reasoning") {
  const auto conversation = [](const std::string& task) {
    return R"([{"role": "user", "content": "a", "task": ")" + task +
           R"("}, {"role": "assistant", "content": "x", "reasoning_content": "r"}])";
  };
  CHECK(Text(conversation("action"), kThinking) ==
        kUser + "a" + kAssistant + kThink + "<｜action｜>x" + kEos);
  CHECK(Text(conversation("action"), kChat) ==
        kUser + "a" + kAssistant + kThinkEnd + "<｜action｜>x" + kEos);
  for (const std::string task : {"query", "authority", "domain", "title", "read_url"}) {
    CHECK(Text(conversation(task), kThinking) == kUser + "a<｜" + task + "｜>x" + kEos);
  }
  // A later user message does not join a turn with a task, a tool result does.
  CHECK(Text(R"([{"role": "user", "content": "a", "task": "title"},
                 {"role": "user", "content": "b"}])",
             kChat) == kUser + "a" + kUser + "b" + kAssistant + kThinkEnd);
  CHECK(Text(R"([{"role": "user", "content": "a", "task": "title"},
                 {"role": "tool", "content": "b"}])",
             kChat) == kUser + "a\n\n<tool_result>b</tool_result><｜title｜>");
  CHECK(Text(R"([{"role": "user", "content": "a"},
                 {"role": "user", "content": "b", "task": "title"}])",
             kChat) == kUser + "a\n\nb" + kAssistant + kThinkEnd);
}

TEST_CASE("tool results take the order of their calls") {
  const auto results = [](const std::string& calls, std::vector<std::string> ids) {
    std::string json = R"([{"role": "assistant", "tool_calls": [)" + calls + "]}";
    for (const std::string& id : ids) {
      json += R"(, {"role": "tool", "content": ")" + id + R"(", "tool_call_id": ")" + id + "\"}";
    }
    const std::string text = Text(json + "]", kChat);
    std::string order;
    for (size_t i = text.find(kEos); i < text.size(); ++i) {
      if (text.compare(i, 13, "<tool_result>") == 0) order += text[i + 13];
    }
    return order;
  };
  const auto call = [](const std::string& id) {
    return R"({"id": ")" + id + R"(", "function": {"name": "f", "arguments": "{}"}})";
  };
  const std::string abc = call("a") + "," + call("b") + "," + call("c");
  CHECK(results(abc, {"c", "b", "a"}) == "abc");
  CHECK(results(abc, {"c", "a"}) == "ac");
  // Unknown ones go with the first call's, in the order in which they came.
  CHECK(results(abc, {"z", "c", "y", "a"}) == "zyac");
  CHECK(results(call("a") + "," + call("b") + "," + call("a"), {"a", "b"}) == "ba");
  // An id may stand in the function. Calls without any leave the order alone.
  CHECK(results(R"({"function": {"name": "f", "arguments": "{}", "id": "a"}},)" + call("b"),
                {"b", "a"}) == "ab");
  CHECK(results(call("") + "," + call(""), {"b", "a"}) == "ba");
}

TEST_CASE("arguments are read as Python reads them") {
  const auto parameters = [](const std::string& arguments) {
    ChatMessage message = {"assistant", ""};
    message.tool_calls.push_back({"", "f", arguments});
    const auto text = RenderChatText({&message, 1}, kChat);
    REQUIRE_OK(text);
    const std::string head = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n";
    const std::string tail = "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" + kEos;
    REQUIRE(text->size() >= head.size() + tail.size());
    REQUIRE(text->compare(0, head.size(), head) == 0);
    REQUIRE(text->compare(text->size() - tail.size(), tail.size(), tail) == 0);
    return text->substr(head.size(), text->size() - head.size() - tail.size());
  };
  const auto one = [](const std::string& key, const std::string& is_string,
                      const std::string& value) {
    return "<｜DSML｜parameter name=\"" + key + "\" string=\"" + is_string + "\">" + value +
           "</｜DSML｜parameter>";
  };
  CHECK(parameters("{}") == "");
  CHECK(parameters(R"({"a": "x\ny", "b": [1.50, {"c": "\u00e9"}]})") ==
        one("a", "true", "x\ny") + "\n" + one("b", "false", R"([1.5, {"c": "é"}])"));
  CHECK(parameters(R"({"a": 1, "b": 2, "a": "3"})") ==
        one("a", "true", "3") + "\n" + one("b", "false", "2"));
  CHECK(parameters(R"({"a": NaN, "b": [-Infinity, 1e999]})") ==
        one("a", "false", "NaN") + "\n" + one("b", "false", "[-Infinity, Infinity]"));
  CHECK(parameters(R"({"\ud800": "\udfff", "b": ["\ud83d"]})") ==
        one("\xED\xA0\x80", "true", "\xED\xBF\xBF") + "\n" +
            one("b", "false", "[\"\xED\xA0\xBD\"]"));
  CHECK(parameters("not json") == one("arguments", "true", "not json"));
  CHECK(parameters("") == one("arguments", "true", ""));
  CHECK(parameters("{'a': 1}") == one("arguments", "true", "{'a': 1}"));
}

TEST_CASE("what cannot be encoded is refused") {
  const auto render = [](const std::vector<ChatMessage>& messages,
                         const std::vector<ChatMessage>& context = {}) {
    const auto text = RenderChatText(messages, {}, context);
    const auto ids = RenderChat(test::TinyTokenizer(), messages, ChatOptions{}, context);
    REQUIRE(text.status() == ids.status());
    return ids.status();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  REQUIRE_FAILS(render({{"", "a"}}), absl::StatusCode::kUnimplemented, "messages[0]: role \"\"");
  REQUIRE_FAILS(render({{"user", "ab\xff"}}), kInvalid,
                "messages[0].content is not UTF-8 at byte 2");
  REQUIRE_FAILS(render({{"user", "a"}, {"assistant", "a", "\xC3"}}), kInvalid,
                "messages[1].reasoning_content is not UTF-8 at byte 0");
  REQUIRE_FAILS(render({}, {{"user", "\xff"}}), kInvalid, "context[0].content is not UTF-8");
  REQUIRE_FAILS(render({{"user", "a"}, {"developer", ""}}), kInvalid,
                "messages[1].content of a developer message is empty");
  ChatMessage message = {"user", "a"};
  message.task = "sing";
  REQUIRE_FAILS(render({message}), kInvalid,
                "messages[0].task is \"sing\"; expected one of action, query, authority, domain, "
                "title, read_url");
  message = {"assistant", "a"};
  const auto with_call = [&](const std::string& name, const std::string& arguments) {
    message.tool_calls = {{"", "f", "{}"}, {"", name, arguments}};
    return render({message});
  };
  REQUIRE_FAILS(with_call("f", "[1]"), kInvalid,
                "messages[0].tool_calls[1].function.arguments is JSON of kind array; expected an "
                "object");
  REQUIRE_FAILS(with_call("f", "null"), kInvalid, "is JSON of kind null");
  REQUIRE_FAILS(with_call("f", "{\xff"), kInvalid,
                "messages[0].tool_calls[1].function.arguments is not UTF-8 at byte 1");
  REQUIRE_FAILS(with_call("\xff", "{}"), kInvalid, "tool_calls[1].function.name is not UTF-8");
  REQUIRE_FAILS(with_call("f", "{\"a\": " + std::string(2000, '[')),
                absl::StatusCode::kUnimplemented, "nested deeper than");
}

TEST_CASE("a tokenizer without a control token is named") {
  std::string json = test::FileText(test::kTinyTokenizerPath);
  const std::string token = "\"content\": \"<｜User｜>\"";
  REQUIRE(json.find(token) != std::string::npos);
  json.replace(json.find(token), token.size(), "\"content\": \"<｜Nobody｜>\"");
  auto tokenizer = Tokenizer::FromJson(json, "doc");
  REQUIRE_OK(tokenizer);
  REQUIRE_FAILS(RenderChat(**tokenizer, std::vector<ChatMessage>{{"user", "a"}}, ChatOptions{}),
                absl::StatusCode::kNotFound, "<｜User｜>");
}

// bench_chat measures the time.
TEST_CASE("a conversation of 1 MB is read and rendered") {
  using test::ConversationKind;
  for (const ConversationKind kind : {ConversationKind::kShortTurns, ConversationKind::kLongTurns,
                                      ConversationKind::kToolCalls}) {
    const std::string json = test::LargeConversation(kind, 1 << 20);
    const auto text = RenderChatText(Messages(json), {.mode = ThinkingMode::kThinking});
    REQUIRE_OK(text);
    CHECK(text->size() > 300000);
  }
}

}  // namespace
}  // namespace dsv4
