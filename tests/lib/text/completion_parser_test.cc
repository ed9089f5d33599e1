// SPDX-License-Identifier: Apache-2.0
#include "lib/text/completion_parser.h"

#include "tests/lib/text/parse_cases.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

using namespace dsv4;
using dsv4::test::ParseCase;

namespace {

#define DSML "｜DSML｜"
#define EOS "<｜end▁of▁sentence｜>"
constexpr auto kCorrupt = absl::StatusCode::kDataLoss;

// A completion in chat mode of one block of tool calls.
std::string Block(const std::string& calls) {
  return "Text.\n\n<" DSML "tool_calls>\n" + calls + "</" DSML "tool_calls>" EOS;
}

std::string Invoke(const std::string& parameters) {
  return "<" DSML "invoke name=\"f\">\n" + parameters + "</" DSML "invoke>\n";
}

std::string Parameter(const std::string& name, const std::string& string,
                      const std::string& value) {
  return "<" DSML "parameter name=\"" + name + "\" string=\"" + string + "\">" + value +
         "</" DSML "parameter>\n";
}

std::string Arguments(const std::string& completion) {
  auto message = ParseCompletion(completion, ThinkingMode::kChat);
  INFO(completion);
  REQUIRE_OK(message);
  REQUIRE(message->tool_calls.size() == 1);
  return message->tool_calls[0].arguments;
}

}  // namespace

TEST_CASE("recorded completions give the published messages and refusals") {
  int refused = 0;
  for (const ParseCase& one : test::ReadParseCases()) {
    INFO(one.text);
    const auto message = ParseCompletion(one.text, one.mode);
    refused += one.refused;
    if (one.refused) {
      CHECK(message.status().code() == kCorrupt);
      continue;
    }
    REQUIRE_OK(message);
    CHECK(message->reasoning_content == one.message.reasoning_content);
    CHECK(message->content == one.message.content);
    REQUIRE(message->tool_calls.size() == one.message.tool_calls.size());
    for (size_t i = 0; i < message->tool_calls.size(); ++i) {
      CHECK(message->tool_calls[i].name == one.message.tool_calls[i].name);
      CHECK(message->tool_calls[i].arguments == one.message.tool_calls[i].arguments);
    }
  }
  CHECK(refused == 111);
}

TEST_CASE("arguments: strings as json.dumps, other values as written") {
  CHECK(Arguments(Block(Invoke(""))) == "{}");
  CHECK(Arguments(Block(Invoke(Parameter("a\"b", "true", "x\"\n</b>")))) ==
        R"({"a\"b": "x\"\n</b>"})");
  CHECK(Arguments(Block(Invoke(Parameter("a", "false", " [1,  2] ") +
                               Parameter("b", "false", "NaN") + Parameter("", "false", "")))) ==
        R"({"a":  [1,  2] , "b": NaN, "": })");
  // Markers of text are text in a value.
  CHECK(Arguments(Block(Invoke(Parameter("a", "true", "<think></think>" EOS)))) ==
        "{\"a\": \"<think></think>" EOS "\"}");
  // The name ends at the first `" string="` with a value.
  CHECK(Arguments(Block(Invoke(Parameter("a\" string=\"maybe", "true", "\" string=\"true\">")))) ==
        R"({"a\" string=\"maybe": "\" string=\"true\">"})");
}

// The pattern `(.*?)<$` of the published parser lets a line break stand before the slash; `">\n$`
// one more after a name; `^\s*name` any white space of Unicode before it.
TEST_CASE("places where the published patterns give way") {
  CHECK(Arguments(Block(Invoke("<" DSML "parameter name=\"a\" string=\"true\">x<\n/" DSML
                               "parameter>\n"))) == R"({"a": "x"})");
  const auto named = [](const std::string& name) {
    auto message = ParseCompletion(Block("<" DSML "invoke" + name + "</" DSML "invoke>\n"),
                                   ThinkingMode::kChat);
    return message.ok() ? message->tool_calls.at(0).name : "REFUSED";
  };
  CHECK(named(" name=\"f\">\n") == "f");
  CHECK(named(" name=\"f\">\n\n") == "f");
  CHECK(named(" name=\"f\">\n\n\n") == "REFUSED");
  CHECK(named(" name=\"f\">") == "REFUSED");
  CHECK(named(" name=\"f\"> \n") == "REFUSED");
  CHECK(named(" name=\">\n") == "REFUSED");
  CHECK(named(" name=\"\">\n") == "");
  CHECK(named(" name=\"a\">\n\">\n") == "a\">\n");
  CHECK(named("name=\"f\">\n") == "f");
  CHECK(named("\n\t\u00a0\u2003\u3000\u0085\x1c\x0bname=\"f\">\n") == "f");
  CHECK(named("\u200bname=\"f\">\n") == "REFUSED");
  CHECK(named("") == "REFUSED");
}

TEST_CASE("completions cut off at places that the published parser lets pass") {
  const std::string start = "Text.\n\n<" DSML "tool_calls";
  const std::string invoke = start + ">\n<" DSML "invoke name=\"f\">\n";
  const std::string parameter =
      invoke + "<" DSML "parameter name=\"a\" string=\"true\">b</" DSML "parameter>\n";
  const auto calls = [](const std::string& completion) {
    auto message = ParseCompletion(completion, ThinkingMode::kChat);
    return message.ok() ? static_cast<int>(message->tool_calls.size()) : -1;
  };
  CHECK(calls(start) == 0);
  CHECK(calls(start + ">") == -1);
  CHECK(calls(start + ">\n") == -1);
  CHECK(calls(invoke) == 1);
  CHECK(calls(invoke + "</") == -1);
  CHECK(calls(parameter) == 1);
  CHECK(calls(parameter + "<") == -1);
  CHECK(calls(parameter + "</" DSML "invoke") == 1);
  CHECK(calls(parameter + "</" DSML "invoke>") == -1);
  CHECK(calls(parameter + "</" DSML "invoke>\n</" DSML "tool_calls>") == 1);
  CHECK(calls(parameter + "</" DSML "invoke>\n</" DSML "tool_calls>\n") == -1);
  CHECK(calls(parameter + "</" DSML "invoke>\n</" DSML "tool_calls>" EOS) == 1);
  CHECK(calls(parameter + "</" DSML "invoke>\n</" DSML "tool_calls>" EOS " ") == -1);
}

TEST_CASE("refusals say where and what") {
  const auto parse = [](const std::string& text) {
    return ParseCompletion(text, ThinkingMode::kChat).status();
  };
  REQUIRE_FAILS(parse("Text"), kCorrupt, "no <｜end▁of▁sentence｜>");
  REQUIRE_FAILS(parse("</think>Text" EOS), kCorrupt, "content holds the marker </think>");
  REQUIRE_FAILS(parse("Text" EOS "x"), kCorrupt, "expected the end, found \"x\"");
  REQUIRE_FAILS(ParseCompletion("Text" EOS, ThinkingMode::kThinking), kCorrupt,
                "reasoning without </think>");
  REQUIRE_FAILS(ParseCompletion("a" DSML "</think>Text" EOS, ThinkingMode::kThinking), kCorrupt,
                "reasoning holds the marker ｜DSML｜");
  REQUIRE_FAILS(parse("<" DSML "tool_calls>\n</" DSML "tool_calls>" EOS), kCorrupt,
                "content holds the marker ｜DSML｜");
  REQUIRE_FAILS(parse("\n\n<" DSML "tool_calls>x"), kCorrupt, "byte 23: expected");
  REQUIRE_FAILS(parse(Block("x")), kCorrupt, "a tool call or the end of the tool calls");
  REQUIRE_FAILS(parse(Block(Invoke(Parameter("k", "true", "1") + Parameter("k", "true", "2")))),
                kCorrupt, "parameter \"k\" is repeated");
  REQUIRE_FAILS(parse(Block(Invoke(Parameter("k", "maybe", "1")))), kCorrupt, "string=");
  REQUIRE_FAILS(parse("caf\xE9" EOS), absl::StatusCode::kInvalidArgument, "byte 3 is not UTF-8");
}

TEST_CASE("a completion without anything is a message without anything") {
  auto message = ParseCompletion(EOS, ThinkingMode::kChat);
  REQUIRE_OK(message);
  CHECK(message->content.empty());
  message = ParseCompletion("</think>" EOS, ThinkingMode::kThinking);
  REQUIRE_OK(message);
  CHECK(message->reasoning_content.empty());
  REQUIRE_FAILS(ParseCompletion("", ThinkingMode::kChat), kCorrupt, "no <");
}
