// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gate_check.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "tools/verify/json_equal.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kEnd = "<｜end▁of▁sentence｜>";
constexpr absl::string_view kThinkEnd = "</think>";
constexpr int64_t kMaxAnswerBytes = 1 << 20;

struct Argument {
  std::string text;
  bool is_string = false;  // otherwise text is JSON
};

struct ToolCall {
  std::string name;
  std::map<std::string, Argument> arguments;
};

// Moves *text past the next `end` and returns what lies before it; nullopt when there is none.
std::optional<absl::string_view> ConsumeUntil(absl::string_view end, absl::string_view* text) {
  const size_t at = text->find(end);
  if (at == absl::string_view::npos) return std::nullopt;
  const absl::string_view before = text->substr(0, at);
  text->remove_prefix(at + end.size());
  return before;
}

// `inner`: parameters of one call, a line each.
bool ParseParameters(absl::string_view inner, std::map<std::string, Argument>* arguments) {
  while (!inner.empty()) {
    if (!absl::ConsumePrefix(&inner, "<｜DSML｜parameter name=\"")) return false;
    const auto name = ConsumeUntil("\" string=\"", &inner);
    const auto is_string = ConsumeUntil("\">", &inner);
    const auto value = ConsumeUntil("</｜DSML｜parameter>", &inner);
    if (!name || !is_string || !value) return false;
    if (*is_string != "true" && *is_string != "false") return false;
    (*arguments)[std::string(*name)] = {std::string(*value), *is_string == "true"};
    absl::ConsumePrefix(&inner, "\n");
  }
  return true;
}

// The calls of an answer that ends with them; nullopt when they are malformed.
std::optional<std::vector<ToolCall>> ParseToolCalls(absl::string_view text) {
  if (!ConsumeUntil("<｜DSML｜tool_calls>\n", &text)) return std::nullopt;
  auto body = ConsumeUntil("\n</｜DSML｜tool_calls>", &text);
  if (!body || !text.empty()) return std::nullopt;
  std::vector<ToolCall> calls;
  while (!body->empty()) {
    if (!absl::ConsumePrefix(&*body, "<｜DSML｜invoke name=\"")) return std::nullopt;
    const auto name = ConsumeUntil("\">\n", &*body);
    auto inner = ConsumeUntil("</｜DSML｜invoke>", &*body);
    if (!name || !inner) return std::nullopt;
    absl::ConsumePrefix(&*body, "\n");
    ToolCall call{std::string(*name), {}};
    if (!ParseParameters(*inner, &call.arguments)) return std::nullopt;
    calls.push_back(std::move(call));
  }
  return calls;
}

bool ArgumentEquals(const Argument& argument, const JsonValue& expected) {
  if (argument.is_string) {
    return expected.AsString() != nullptr && *expected.AsString() == argument.text;
  }
  const absl::StatusOr<JsonValue> value = ParseJson(argument.text, "argument", kMaxAnswerBytes);
  return value.ok() && JsonEqual(*value, expected);
}

bool CallEquals(const ToolCall& call, const JsonValue& expected) {
  const JsonValue* name = expected.Find("name");
  const JsonValue* arguments = expected.Find("arguments");
  if (name == nullptr || name->AsString() == nullptr || *name->AsString() != call.name) {
    return false;
  }
  if (arguments == nullptr || arguments->AsObject() == nullptr ||
      arguments->AsObject()->size() != call.arguments.size()) {
    return false;
  }
  for (const auto& [key, argument] : call.arguments) {
    const JsonValue* value = arguments->Find(key);
    if (value == nullptr || !ArgumentEquals(argument, *value)) return false;
  }
  return true;
}

bool ToolCallsEqual(absl::string_view text, const JsonValue& expected) {
  const std::optional<std::vector<ToolCall>> calls = ParseToolCalls(text);
  const std::vector<JsonValue>* wanted = expected.AsArray();
  if (!calls || wanted == nullptr || calls->size() != wanted->size()) return false;
  for (size_t i = 0; i < calls->size(); ++i) {
    if (!CallEquals((*calls)[i], (*wanted)[i])) return false;
  }
  return true;
}

}  // namespace

bool AnswerPasses(absl::string_view answer, bool thinking, absl::string_view check,
                  const JsonValue& expected) {
  if (!absl::ConsumeSuffix(&answer, kEnd)) return false;
  if (thinking && (!ConsumeUntil(kThinkEnd, &answer) || absl::StrContains(answer, kThinkEnd))) {
    return false;
  }
  if (check == "tool") return ToolCallsEqual(answer, expected);
  const std::string* text = expected.AsString();
  if (text == nullptr) return false;
  if (check == "exact") return answer == *text;
  const absl::StatusOr<JsonValue> value = ParseJson(answer, "answer", kMaxAnswerBytes);
  const absl::StatusOr<JsonValue> wanted = ParseJson(*text, "expected", kMaxAnswerBytes);
  return value.ok() && wanted.ok() && JsonEqual(*value, *wanted);
}

}  // namespace dsv4
