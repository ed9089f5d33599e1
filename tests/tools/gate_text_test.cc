// SPDX-License-Identifier: Apache-2.0
// The texts around the gates: prompts as tools/tinymodel/chat.py renders them, and the checks of
// answers.
#include <string>

#include "lib/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tools/verify/gate_check.h"
#include "tools/verify/gate_prompt.h"
#include "tools/verify/json_text.h"

namespace dsv4 {
namespace {

JsonValue Json(const std::string& text) {
  absl::StatusOr<JsonValue> value = ParseJson(text, "test", 1 << 20);
  REQUIRE_OK(value);
  return *std::move(value);
}

std::string Prompt(const std::string& messages, bool thinking) {
  absl::StatusOr<std::string> prompt = GatePrompt(Json(messages), thinking);
  REQUIRE_OK(prompt);
  return *prompt;
}

const std::string kCall =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">x y</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"b\" string=\"false\">[1, 2.5]</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
const std::string kEnd = "<｜end▁of▁sentence｜>";

TEST_CASE("a plain turn is opened for an answer, in thinking mode for its reasoning") {
  const std::string messages = R"([{"role": "system", "content": "S"},
                                   {"role": "user", "content": "U"}])";
  CHECK(Prompt(messages, false) == "<｜begin▁of▁sentence｜>S<｜User｜>U<｜Assistant｜></think>");
  CHECK(Prompt(messages, true) == "<｜begin▁of▁sentence｜>S<｜User｜>U<｜Assistant｜><think>");
}

TEST_CASE("earlier reasoning is dropped without tools and kept with them") {
  const std::string turns =
      R"({"role": "user", "content": "U"},
         {"role": "assistant", "content": "A", "reasoning_content": "R"},
         {"role": "user", "content": "V"}])";
  CHECK(Prompt("[" + turns, true) == "<｜begin▁of▁sentence｜><｜User｜>U<｜Assistant｜></think>A" +
                                         kEnd + "<｜User｜>V<｜Assistant｜><think>");
  const std::string tools =
      R"([{"role": "system", "content": "", "tools": [{"function": {"name": "é", "n": 1}}]},)";
  const std::string prompt = Prompt(tools + turns, true);
  CHECK(prompt.find("### Available Tool Schemas\n\n{\"name\": \"é\", \"n\": 1}\n\nYou MUST") !=
        std::string::npos);
  const std::string end =
      "<｜User｜>U<｜Assistant｜><think>R</think>A" + kEnd + "<｜User｜>V<｜Assistant｜><think>";
  CHECK(prompt.substr(prompt.size() - end.size()) == end);
}

TEST_CASE("tool calls and their results form a turn") {
  const std::string messages =
      R"([{"role": "user", "content": "U"},
          {"role": "assistant", "content": null, "tool_calls": [{"function":
             {"name": "f", "arguments": "{\"a\": \"x y\", \"b\": [1, 2.5]}"}}]},
          {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])";
  CHECK(Prompt(messages, false) ==
        "<｜begin▁of▁sentence｜><｜User｜>U<｜Assistant｜></think>" + kCall + kEnd +
            "<｜User｜><tool_result>1</tool_result>\n\n<tool_result>2</tool_result>"
            "<｜Assistant｜></think>");
  REQUIRE_FAILS(GatePrompt(Json(R"([{"role": "judge", "content": ""}])"), false),
                absl::StatusCode::kDataLoss, "judge");
}

TEST_CASE("JSON is written as Python's json.dumps writes it") {
  CHECK(PythonJson(Json(R"({"a":[1,-2.50,true,null,{}],"b":"\"\\\n\u0001é\u007f","c":[]})")) ==
        "{\"a\": [1, -2.50, true, null, {}], \"b\": \"\\\"\\\\\\n\\u0001é\x7f\", \"c\": []}");
  CHECK(JsonEqual(Json(R"({"a": 1, "b": [2.0]})"), Json(R"({"b": [2], "a": 1.0})")));
  CHECK_FALSE(JsonEqual(Json(R"({"a": 1})"), Json(R"({"a": 1, "b": 2})")));
  CHECK_FALSE(JsonEqual(Json("[1, 2]"), Json("[2, 1]")));
  CHECK_FALSE(JsonEqual(Json("1"), Json("\"1\"")));
}

TEST_CASE("an answer passes exact, json and tool checks by its content") {
  const JsonValue text = Json("\"Paris\"");
  CHECK(AnswerPasses("Paris" + kEnd, false, "exact", text));
  CHECK_FALSE(AnswerPasses("Paris", false, "exact", text));
  CHECK_FALSE(AnswerPasses("Paris." + kEnd, false, "exact", text));
  CHECK(AnswerPasses("so</think>Paris" + kEnd, true, "exact", text));
  CHECK_FALSE(AnswerPasses("Paris" + kEnd, true, "exact", text));
  CHECK_FALSE(AnswerPasses("a</think></think>Paris" + kEnd, true, "exact", text));

  const JsonValue object = Json(R"("{\"a\": 1, \"b\": 2}")");
  CHECK(AnswerPasses("{\"b\":2,\"a\":1}" + kEnd, false, "json", object));
  CHECK_FALSE(AnswerPasses("{\"b\":2,\"a\":1" + kEnd, false, "json", object));

  const JsonValue calls = Json(R"([{"name": "f", "arguments": {"b": [1, 2.5], "a": "x y"}}])");
  CHECK(AnswerPasses(kCall + kEnd, false, "tool", calls));
  CHECK_FALSE(AnswerPasses(kCall + "." + kEnd, false, "tool", calls));
  CHECK_FALSE(AnswerPasses("none" + kEnd, false, "tool", calls));
  CHECK_FALSE(
      AnswerPasses(kCall + kEnd, false, "tool",
                   Json(R"([{"name": "f", "arguments": {"b": [1, 2.5], "a": "x", "c": 1}}])")));
  CHECK_FALSE(AnswerPasses(kCall + kEnd, false, "tool",
                           Json(R"([{"name": "g", "arguments": {"b": [1, 2.5], "a": "x y"}}])")));
}

}  // namespace
}  // namespace dsv4
