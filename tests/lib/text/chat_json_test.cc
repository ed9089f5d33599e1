// SPDX-License-Identifier: Apache-2.0
// What a message's keys become, by hand from the published encoder's rules: it formats values as
// Python's str does, and joins parts by an empty line.
#include "lib/text/chat_json.h"

#include <string>

#include "lib/text/python_json.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

// The one message of the list [`object`].
ChatMessage Message(const std::string& object) {
  auto messages = ParseMessages("[" + object + "]");
  REQUIRE_OK(messages);
  REQUIRE(messages->size() == 1);
  return messages->front();
}

std::string Content(const std::string& role, const std::string& content) {
  return Message(R"({"role": ")" + role + R"(", "content": )" + content + "}").content;
}

std::string Json(const JsonValue& value) {
  std::string text;
  AppendPythonJson(value, &text);
  return text;
}

TEST_CASE("every key of a message is read") {
  const ChatMessage m = Message(R"({"role": "assistant", "content": "c", "reasoning_content": "r",
      "wo_eos": true, "task": "title", "response_format": {"b": 1.0, "a": 2},
      "tools": [{"type": "function", "function": {"name": "t"}}, {"function": null}],
      "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                     {"function": {"name": "g", "arguments": "x", "id": "j"}}],
      "mask": 1, "name": "n"})");
  CHECK(m.role == "assistant");
  CHECK(m.content == "c");
  CHECK(m.reasoning_content == "r");
  CHECK(m.wo_eos);
  CHECK(m.task == "title");
  CHECK(Json(*m.response_format) == R"({"b": 1.0, "a": 2})");
  REQUIRE(m.tools.size() == 2);
  CHECK(Json(m.tools[0]) == R"({"name": "t"})");
  CHECK(m.tools[1].IsNull());
  REQUIRE(m.tool_calls.size() == 2);
  CHECK(m.tool_calls[0].id == "i");
  CHECK(m.tool_calls[0].name == "f");
  CHECK(m.tool_calls[0].arguments == "{}");
  CHECK(m.tool_calls[1].id == "j");
  CHECK(m.tool_calls[1].arguments == "x");
  CHECK(Message(R"({"role": "tool", "content": "c", "tool_call_id": "i"})").tool_call_id == "i");
}

TEST_CASE("an assistant's message is written as it is read") {
  const std::string json =
      R"({"role": "assistant", "content": "c", "reasoning_content": "r", "tool_calls": [)"
      R"({"id": "i", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"é\"}"}}, )"
      R"({"type": "function", "function": {"name": "g", "arguments": "x"}}]})";
  CHECK(Json(AssistantToJson(Message(json))) == json);
  CHECK(Json(AssistantToJson({"assistant", ""})) ==
        R"({"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []})");
}

TEST_CASE("null, false, zero and empty values count as missing") {
  for (const std::string nothing : {"null", "false", "0", "\"\"", "[]", "{}"}) {
    INFO(nothing);
    std::string object = R"({"role": "assistant")";
    for (const std::string key :
         {"content", "reasoning_content", "wo_eos", "tools", "tool_calls", "response_format"}) {
      object += ", \"" + key + "\": " + nothing;
    }
    const ChatMessage m = Message(object + "}");
    CHECK(m.content.empty());
    CHECK(m.reasoning_content.empty());
    CHECK_FALSE(m.wo_eos);
    CHECK(m.tools.empty());
    CHECK(m.tool_calls.empty());
    CHECK_FALSE(m.response_format.has_value());
    CHECK_FALSE(m.task.has_value());
  }
  CHECK(Message(R"({"role": "user", "task": ""})").task == "");
  CHECK_FALSE(Message(R"({"role": "user", "task": null})").task.has_value());
}

TEST_CASE("content is text, parts, or what Python makes of a scalar") {
  CHECK(Content("user", R"("a\ud83d\ude80")") == "a🚀");
  for (const std::string role : {"user", "tool"}) {
    CHECK(Content(role, "[]") == "");
    CHECK(Content(role, R"([{"type": "text", "text": "a"}, {"type": "text"},
                            {"type": "text", "text": "b"}])") == "a\n\n\n\nb");
    CHECK(Content(role, R"([{"type": "image", "text": "a"}, {"x": 1}, {"type": 2}])") ==
          "[Unsupported image]\n\n[Unsupported None]\n\n[Unsupported 2]");
    CHECK(Message(R"({"role": ")" + role + "\"}").content == "");
  }
  for (const std::string role : {"tool", "latest_reminder"}) {
    CHECK(Content(role, "null") == "None");
    CHECK(Content(role, "true") == "True");
    CHECK(Content(role, "0") == "0");
    CHECK(Content(role, "1e16") == "1e+16");
    CHECK(Content(role, "NaN") == "nan");
    CHECK(Content(role, "\"\"") == "");
  }
  CHECK(Message(R"({"role": "latest_reminder"})").content == "None");
  CHECK(Content("system", "1.50") == "1.5");
  CHECK(Content("assistant", "true") == "True");
}

TEST_CASE("arguments that are no string are the one parameter") {
  const auto arguments = [](const std::string& json) {
    return Message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                       "arguments": )" +
                   json + "}}]}")
        .tool_calls[0]
        .arguments;
  };
  CHECK(arguments(R"({"a":1})") == R"({"arguments": {"a": 1}})");
  CHECK(arguments("null") == R"({"arguments": null})");
}

TEST_CASE("faults name the message and the key") {
  const auto fails = [](const std::string& object, const char* message) {
    REQUIRE_FAILS(ParseMessages(R"([{"role": "user"}, )" + object + "]"),
                  absl::StatusCode::kInvalidArgument, message);
  };
  fails("3", "messages[1] is of kind number; expected an object");
  fails("{}", "messages[1].role is missing");
  fails(R"({"role": null})", "messages[1].role is of kind null; expected a string");
  fails(R"({"role": "user", "content": null})", "messages[1].content is of kind null");
  fails(R"({"role": "user", "content": 1})", "messages[1].content is of kind number");
  fails(R"({"role": "developer", "content": ["a"]})", "messages[1].content is of kind array");
  fails(R"({"role": "system", "content": ["a"]})", "messages[1].content is of kind array");
  fails(R"({"role": "tool", "content": {}})", "messages[1].content is of kind object");
  fails(R"({"role": "tool", "content": [{"type": "text"}, "a"]})",
        "messages[1].content[1] is of kind string; expected an object");
  fails(R"({"role": "user", "content": [{"type": "text", "text": null}]})",
        "messages[1].content[0].text is of kind null; expected a string");
  fails(R"({"role": "tool", "tool_call_id": 5})", "messages[1].tool_call_id is of kind number");
  fails(R"({"role": "user", "task": 1})", "messages[1].task is of kind number");
  fails(R"({"role": "system", "tools": {"a": 1}})", "messages[1].tools is of kind object");
  fails(R"({"role": "system", "tools": [{"type": "function"}]})",
        "messages[1].tools[0].function is missing");
  fails(R"({"role": "assistant", "reasoning_content": [1]})",
        "messages[1].reasoning_content is of kind array");
  fails(R"({"role": "assistant", "tool_calls": "x"})", "messages[1].tool_calls is of kind string");
  fails(
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, {}]})",
      "messages[1].tool_calls[1].function is missing");
  fails(R"({"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]})",
        "messages[1].tool_calls[0].function.name is missing");
  fails(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})",
        "messages[1].tool_calls[0].function.arguments is missing");
  fails(R"({"role": "assistant", "tool_calls": [{"function": "f"}]})",
        "messages[1].tool_calls[0].function is of kind string; expected an object");
  fails(R"({"role": "assistant",
            "tool_calls": [{"id": 7, "function": {"name": "f", "arguments": "{}"}}]})",
        "messages[1].tool_calls[0].id is of kind number");
  REQUIRE_FAILS(ParseMessages("{}"), absl::StatusCode::kInvalidArgument,
                "messages is of kind object; expected an array of messages");
  REQUIRE_FAILS(ParseMessages("[", "request"), absl::StatusCode::kDataLoss,
                "request: line 1, column 2");
}

TEST_CASE("a list of tools is read on its own") {
  const auto tools = ParseTools(R"([{"type": "function", "function": {"name": "f"}}])");
  REQUIRE_OK(tools);
  REQUIRE(tools->size() == 1);
  CHECK(Json(tools->front()) == R"({"name": "f"})");
  REQUIRE_FAILS(ParseTools("{}"), absl::StatusCode::kInvalidArgument, "tools is of kind object");
  REQUIRE_FAILS(ParseTools("[1]"), absl::StatusCode::kInvalidArgument,
                "tools[0] is of kind number");
}

}  // namespace
}  // namespace dsv4
