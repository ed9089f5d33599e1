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
      "wo_eos": true, "task": "title", 
      "tools": [{"type": "function", "function": {"name": "t"}}, {"function": {}}],
      "tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                     {"function": {"name": "g", "arguments": "x", "id": "j"}}],
      "mask": 1, "name": "n"})");
  CHECK(m.role == "assistant");
  CHECK(m.content == "c");
  CHECK(m.reasoning_content == "r");
  CHECK(m.wo_eos);
  CHECK(m.task == "title");
  CHECK(Json(*Message(R"({"role": "system", "response_format": {"b": 1.0, "a": 2}})")
                  .response_format) == R"({"b": 1.0, "a": 2})");
  REQUIRE(m.tools.size() == 2);
  CHECK(Json(m.tools[0]) == R"({"name": "t"})");
  CHECK(Json(m.tools[1]) == "{}");
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
  for (const std::string role :
       {"user", "tool", "system", "assistant", "developer", "latest_reminder"}) {
    INFO(role);
    CHECK(Content(role, "[]") == "");
    CHECK(Content(role, R"([{"type": "text", "text": ""}])") == "");
    CHECK(Content(role, R"([{"type": "text", "text": "a"}, {"type": "text"},
                            {"type": "text", "text": "b"}])") == "a\n\n\n\nb");
    CHECK(Content(role, R"([{"type": "input_text", "text": "a"}, {"text": "b"},
                            {"type": "output_text", "text": "c"}, {"type": null, "text": "d"}])") ==
          "a\n\nb\n\nc\n\nd");
    CHECK(Message(R"({"role": ")" + role + "\"}").content == "");
  }
  for (const std::string role : {"user", "tool"}) {
    CHECK(Content(role, R"([{"type": "image"}, {"type": "image_url", "image_url": {}},
                            {"type": 2}])") ==
          "[Unsupported image]\n\n[Unsupported image_url]\n\n[Unsupported 2]");
  }
  for (const std::string role : {"tool", "latest_reminder"}) {
    CHECK(Content(role, "null") == "");
    CHECK(Content(role, "true") == "True");
    CHECK(Content(role, "0") == "0");
    CHECK(Content(role, "1e16") == "1e+16");
    CHECK(Content(role, "NaN") == "nan");
    CHECK(Content(role, "\"\"") == "");
  }
  for (const std::string role : {"system", "assistant", "developer"}) {
    CHECK(Content(role, "null") == "");
  }
  CHECK(Content("system", "1.50") == "1.5");
  CHECK(Content("assistant", "true") == "True");
}

TEST_CASE("arguments are an object, or its JSON in a string") {
  const auto arguments = [](const std::string& json) {
    return Message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                       "arguments": )" +
                   json + "}}]}")
        .tool_calls[0]
        .arguments;
  };
  CHECK(arguments(R"({"a":1, "b": {"c": "é"}})") == R"({"a": 1, "b": {"c": "é"}})");
  CHECK(arguments("{}") == "{}");
  CHECK(arguments("null") == "{}");
  CHECK(arguments(R"("{\"a\":1}")") == R"({"a":1})");
  // As clients send them for no parameters.
  CHECK(arguments(R"("")") == "{}");
  CHECK(arguments(R"(" \n")") == "{}");
}

TEST_CASE("of arguments that were cut off, the parameters so far count") {
  const auto arguments = [](const std::string& text) {
    std::string escaped;
    AppendPythonJson(JsonValue::FromString(text), &escaped);
    return Message(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
                       "arguments": )" +
                   escaped + "}}]}")
        .tool_calls[0]
        .arguments;
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"({)", R"({})"},
      {R"( {"a": "Par)", R"({"a": "Par"})"},
      {R"({"a": "x\)", R"({"a": "x"})"},
      {R"({"a": "x\u00e)", R"({"a": "x"})"},
      {R"({"a": "x\u00e9)", R"({"a": "x\u00e9"})"},
      {R"({"a": "x\\)", R"({"a": "x\\"})"},
      {R"({"a": "x")", R"({"a": "x"})"},
      {R"({"a": "x", )", R"({"a": "x"})"},
      {R"({"a": "x", "b)", R"({"a": "x"})"},
      {R"({"a": "x", "b": tr)", R"({"a": "x"})"},
      {R"({"a": [1, {"b": "c}], )", R"({"a": [1, {"b": "c}], "}]})"},
      {R"({"a": [1, {"b": 2}, fal)", R"({"a": [1, {"b": 2}]})"},
      {R"({"a": tr)", R"({})"},
      // No start of an object.
      {"not json", "not json"},
      {R"(["a)", R"(["a)"},
      {R"({"a": 1]})", R"({"a": 1]})"},
      {R"({"a": 1} and)", R"({"a": 1} and)"},
      {R"({'a': 1)", R"({})"},
  };
  for (const auto& [text, mended] : cases) {
    INFO(text);
    CHECK(arguments(text) == mended);
  }
  // Every start of an object is one.
  const std::string whole = R"({"a": "\"x\" \u00e9\\", "b": [1.5, {"c": null}], "d": {"e": ""}})";
  for (size_t size = 1; size <= whole.size(); ++size) {
    INFO(whole.substr(0, size));
    CHECK(ParsePythonJson(arguments(whole.substr(0, size)), "").ok());
  }
  // As recorded from the published encoder, what it is given itself stays.
  const auto published = MessagesFromJson(*ParsePythonJson(
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]}])",
      "test"));
  REQUIRE_OK(published);
  CHECK(published->front().tool_calls[0].arguments.empty());
}

TEST_CASE("an assistant's last message may be continued") {
  CHECK(Message(R"({"role": "assistant", "content": "The capital", "prefix": true})").wo_eos);
  CHECK_FALSE(Message(R"({"role": "assistant", "content": "c", "prefix": false})").wo_eos);
  REQUIRE_FAILS(ParseMessages(R"([{"role": "assistant", "content": "a", "prefix": true},
                                  {"role": "user", "content": "b"}])"),
                absl::StatusCode::kInvalidArgument,
                "messages[0].prefix is set, but only the last message may be continued");
}

TEST_CASE("words that would be lost are refused") {
  const auto fails = [](const std::string& object, const char* message) {
    REQUIRE_FAILS(ParseMessages("[" + object + "]"), absl::StatusCode::kInvalidArgument, message);
  };
  for (const std::string role :
       {"user", "tool", "system", "assistant", "developer", "latest_reminder"}) {
    INFO(role);
    const std::string start = R"({"role": ")" + role + R"(", "content": )";
    fails(start + R"([{"type": "thought", "text": "a"}]})",
          "messages[0].content[0].type is \"thought\"; expected \"text\"");
    fails(start + "[{}]}", "messages[0].content[0] has neither a type nor a text");
    fails(start + R"([[{"type": "text", "text": "a"}]]})",
          "messages[0].content[0] is of kind array; expected an object");
    fails(start + R"([null]})", "messages[0].content[0] is of kind null");
    fails(start + R"([{"text": 1}]})", "messages[0].content[0].text is of kind number");
    for (const std::string key : {"function_call", "functions", "refusal"}) {
      fails(start + R"("a", ")" + key + R"(": {"a": 1}})", ("messages[0]." + key).c_str());
    }
    if (role != "assistant") {
      fails(start + R"("a", "reasoning_content": "r"})", "messages[0].reasoning_content is set");
      fails(start + R"("a", "tool_calls": [1]})", "messages[0].tool_calls is set");
      fails(start + R"("a", "prefix": true})", "messages[0].prefix is set");
    }
    if (role != "system" && role != "developer") {
      fails(start + R"("a", "response_format": {"a": 1}})", "messages[0].response_format is set");
    }
    if (role == "user" || role == "tool") {
      fails(start + R"("a", "tools": [{"type": "function", "function": {"name": "f"}}]})",
            "messages[0].tools is set, but a user's or a tool's message has none");
    } else if (role != "tool") {
      fails(start + R"([{"type": "image_url", "image_url": {}}]})",
            "messages[0].content[0].type is \"image_url\"");
    }
    // Nothing is lost of these.
    CHECK(Message(start + R"("a", "tools": [], "tool_calls": null, "reasoning_content": "",
                              "response_format": null, "prefix": false, "refusal": null,
                              "name": "n", "audio": null})")
              .content == "a");
  }
  fails(R"({"role": "system", "tools": [{"type": "function", "name": "f", "parameters": {}}]})",
        "messages[0].tools[0].function is missing: the tool has the flat form");
  fails(R"({"role": "system", "tools": [{"type": "function", "function": null}]})",
        "messages[0].tools[0].function is of kind null; expected an object");
}

TEST_CASE("several system messages are all written") {
  auto messages = ParseMessages(R"([{"role": "system", "content": [{"text": "a"}]},
                                    {"role": "system", "content": "b"}, {"role": "user",
                                     "content": "c"}])");
  REQUIRE_OK(messages);
  REQUIRE(messages->size() == 3);
  CHECK((*messages)[0].content == "a");
  CHECK((*messages)[1].content == "b");
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
  fails(R"({"role": "developer", "content": ["a"]})", "messages[1].content[0] is of kind string");
  fails(R"({"role": "system", "content": {"a": 1}})", "messages[1].content is of kind object");
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
  fails(R"({"role": "assistant", "tool_calls": [{"function": {"name": null, "arguments": ""}}]})",
        "messages[1].tool_calls[0].function.name is of kind null; expected a string");
  for (const std::string arguments : {"[1]", "1", "true"}) {
    fails(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" +
              arguments + "}}]}",
          "messages[1].tool_calls[0].function.arguments is of kind");
  }
  fails(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})",
        "messages[1].tool_calls[0].function.arguments is missing");
  fails(R"({"role": "assistant", "tool_calls": [{"function": "f"}]})",
        "messages[1].tool_calls[0].function is of kind string; expected an object");
  fails(R"({"role": "assistant",
            "tool_calls": [{"id": 7, "function": {"name": "f", "arguments": "{}"}}]})",
        "messages[1].tool_calls[0].id is of kind number");
  fails(R"({"role": "assistant", "tool_calls": [null]})",
        "messages[1].tool_calls[0] is of kind null; expected an object");
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
