// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gate_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/verify/json_equal.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxAnswerBytes = 1 << 20;

bool SameJson(const std::string& text, const JsonValue& expected) {
  const absl::StatusOr<JsonValue> value = ParseJson(text, "answer", kMaxAnswerBytes);
  return value.ok() && JsonEqual(*value, expected);
}

}  // namespace

void GateAnswer::Add(const ParserEvent& event) {
  switch (event.kind) {
    case ParserEvent::Kind::kReasoning:
      return;
    case ParserEvent::Kind::kText:
      absl::StrAppend(&content_, event.text);
      return;
    case ParserEvent::Kind::kToolCallStart:
      calls_.push_back({std::string(event.text), ""});
      return;
    case ParserEvent::Kind::kToolCallArguments:
      absl::StrAppend(&calls_.back().arguments, event.text);
      return;
    case ParserEvent::Kind::kToolCallEnd:
      calls_.back().whole = !event.repaired;
      return;
    case ParserEvent::Kind::kMalformed:
      malformed_ = true;
      return;
    case ParserEvent::Kind::kEnd:
      stopped_ = event.stopped && !event.incomplete;
      return;
  }
}

bool GateAnswer::CallsEqual(const JsonValue& expected) const {
  const std::vector<JsonValue>* wanted = expected.AsArray();
  if (wanted == nullptr) return false;
  return std::equal(calls_.begin(), calls_.end(), wanted->begin(), wanted->end(),
                    [](const Call& call, const JsonValue& value) {
                      const JsonValue* name = value.Find("name");
                      const JsonValue* arguments = value.Find("arguments");
                      return call.whole && name != nullptr && name->AsString() != nullptr &&
                             *name->AsString() == call.name && arguments != nullptr &&
                             SameJson(call.arguments, *arguments);
                    });
}

bool GateAnswer::Passes(absl::string_view check, const JsonValue& expected) const {
  if (!stopped_ || malformed_) return false;
  if (check == "tool") return CallsEqual(expected);
  const std::string* text = expected.AsString();
  if (text == nullptr || !calls_.empty()) return false;
  if (check == "exact") return content_ == *text;
  const absl::StatusOr<JsonValue> wanted = ParseJson(*text, "expected", kMaxAnswerBytes);
  return wanted.ok() && SameJson(content_, *wanted);
}

}  // namespace dsv4
