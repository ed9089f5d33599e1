// SPDX-License-Identifier: Apache-2.0
// The checks of the answers to the gates.
#include <string>

#include "lib/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tools/verify/gate_check.h"
#include "tools/verify/json_equal.h"

namespace dsv4 {
namespace {

JsonValue Json(const std::string& text) {
  absl::StatusOr<JsonValue> value = ParseJson(text, "test", 1 << 20);
  REQUIRE_OK(value);
  return *std::move(value);
}

const std::string kCall =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">x y</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"b\" string=\"false\">[1, 2.5]</｜DSML｜parameter>\n"
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
const std::string kEnd = "<｜end▁of▁sentence｜>";

// Of what the model wrote after the prompt.
bool AnswerPasses(const std::string& text, bool thinking, absl::string_view check,
                  const JsonValue& expected) {
  StreamingParser parser({.mode = thinking ? ThinkingMode::kThinking : ThinkingMode::kChat});
  GateAnswer answer;
  const auto add = [&](const ParserEvent& event) { answer.Add(event); };
  parser.Feed(text, add);
  parser.End(add);
  return answer.Passes(check, expected);
}

TEST_CASE("JSON values are equal by what they mean") {
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
  CHECK(AnswerPasses("so</think>" + kCall + kEnd, true, "tool", calls));
  CHECK_FALSE(AnswerPasses("none" + kEnd, false, "tool", calls));
  CHECK_FALSE(AnswerPasses(kCall, false, "tool", calls));
  CHECK_FALSE(AnswerPasses(kCall + kEnd, false, "tool", Json("[]")));
  CHECK_FALSE(AnswerPasses("Paris" + kCall + kEnd, false, "exact", text));
  // No JSON: the parser makes it a string.
  std::string repaired = kCall;
  repaired.replace(repaired.find("2.5]"), 4, "2.5");
  CHECK_FALSE(AnswerPasses(repaired + kEnd, false, "tool", calls));
  CHECK_FALSE(AnswerPasses(repaired + kEnd, false, "tool",
                           Json(R"([{"name": "f", "arguments": {"b": "[1, 2.5", "a": "x y"}}])")));
  CHECK_FALSE(
      AnswerPasses(kCall + kEnd, false, "tool",
                   Json(R"([{"name": "f", "arguments": {"b": [1, 2.5], "a": "x", "c": 1}}])")));
  CHECK_FALSE(AnswerPasses(kCall + kEnd, false, "tool",
                           Json(R"([{"name": "g", "arguments": {"b": [1, 2.5], "a": "x y"}}])")));
}

}  // namespace
}  // namespace dsv4
