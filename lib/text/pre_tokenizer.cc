// SPDX-License-Identifier: Apache-2.0
#include "lib/text/pre_tokenizer.h"

#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/tokenizer_json.h"

namespace dsv4 {
namespace {

// The family has four. Each is one level of recursion.
constexpr size_t kMaxSteps = 64;

absl::StatusOr<SplitPattern> ReadSplit(const JsonValue& step, absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const absl::string_view behavior, StringAt(step, "behavior", where));
  if (behavior != "Isolated") {
    return Unsupported(where, ": Split with behavior ", Quoted(behavior), " is not supported");
  }
  DSV4_RETURN_IF_ERROR(RequireOff(step, "invert", where));
  DSV4_ASSIGN_OR_RETURN(const std::vector<JsonMember>* pattern, ObjectAt(step, "pattern", where));
  const std::string* text = pattern->size() == 1 ? (*pattern)[0].value.AsString() : nullptr;
  if (!text) return Corrupt(where, ": \"pattern\" is neither {Regex: string} nor {String: string}");
  const std::string& kind = (*pattern)[0].key;
  if (kind != "Regex" && kind != "String") {
    return Unsupported(where, ": pattern kind ", Quoted(kind), " is not supported");
  }
  absl::StatusOr<SplitPattern> result =
      kind == "Regex" ? SplitPattern::FromRegex(*text) : SplitPattern::FromLiteral(*text);
  if (!result.ok()) {
    return absl::Status(result.status().code(),
                        absl::StrCat(where, ": ", result.status().message()));
  }
  return result;
}

absl::Status CheckByteLevel(const JsonValue& step, absl::string_view where) {
  // Both default to true in the HF library.
  for (const char* option : {"add_prefix_space", "use_regex"}) {
    DSV4_ASSIGN_OR_RETURN(const bool on, BoolAt(step, option, true, where));
    if (on) return Unsupported(where, ": ByteLevel with ", option, " is not supported");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonValue& root,
                                                    absl::string_view where) {
  const std::string place = absl::StrCat(where, ": pre_tokenizer");
  const JsonValue* object = root.Find("pre_tokenizer");
  if (!object || object->IsNull()) {
    return Unsupported(place, ": a tokenizer without one is not supported");
  }
  DSV4_ASSIGN_OR_RETURN(const absl::string_view type, StringAt(*object, "type", place));
  std::vector<const JsonValue*> steps = {object};
  if (type == "Sequence") {
    DSV4_ASSIGN_OR_RETURN(const auto* items, ArrayAt(*object, "pretokenizers", place));
    steps.clear();
    for (const JsonValue& item : *items) steps.push_back(&item);
  }
  if (steps.size() > kMaxSteps) {
    return Unsupported(place, ": ", steps.size(), " steps, at most ", kMaxSteps, " are supported");
  }
  PreTokenizer result;
  bool has_byte_level = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string step_place = absl::StrCat(place, " step ", i);
    DSV4_ASSIGN_OR_RETURN(const absl::string_view step, StringAt(*steps[i], "type", step_place));
    if (has_byte_level) {
      return Unsupported(step_place, ": ", Quoted(step), " after ByteLevel is not supported");
    }
    if (step == "Split") {
      DSV4_ASSIGN_OR_RETURN(SplitPattern pattern, ReadSplit(*steps[i], step_place));
      result.patterns_.push_back(std::move(pattern));
    } else if (step == "ByteLevel") {
      DSV4_RETURN_IF_ERROR(CheckByteLevel(*steps[i], step_place));
      has_byte_level = true;
    } else {
      return Unsupported(step_place, ": type ", Quoted(step), " is not supported");
    }
  }
  if (!has_byte_level) return Unsupported(place, ": steps without ByteLevel are not supported");
  return result;
}

absl::Status PreTokenizer::Split(absl::string_view text, MatchState& state,
                                 absl::FunctionRef<absl::Status(absl::string_view)> emit) const {
  return SplitFrom(0, text, state, emit);
}

absl::Status PreTokenizer::SplitFrom(
    size_t step, absl::string_view text, MatchState& state,
    absl::FunctionRef<absl::Status(absl::string_view)> emit) const {
  if (step == patterns_.size()) return text.empty() ? absl::OkStatus() : emit(text);
  return patterns_[step].ForEachPiece(text, state, [&](absl::string_view piece) {
    return SplitFrom(step + 1, piece, state, emit);
  });
}

}  // namespace dsv4
