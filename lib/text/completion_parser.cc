// SPDX-License-Identifier: Apache-2.0
#include "lib/text/completion_parser.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/completion_markup.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

using markup::MarkerSet;

// The published parser knows the start of the calls by these bytes alone; the bracket's missing ">"
// is then a malformed list.
constexpr absl::string_view kCallsStart = "\n\n<｜DSML｜tool_calls";
constexpr MarkerSet kReasoningEnds = {markup::kThinkEnd, kCallsStart};
constexpr MarkerSet kContentEnds = {markup::kEndOfSentence, kCallsStart};
constexpr MarkerSet kNoPlaceInText = {markup::kBeginOfSentence, markup::kEndOfSentence,
                                      markup::kThinkStart, markup::kThinkEnd, markup::kDsml};
constexpr absl::string_view kLineEnd = ">\n";

class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  size_t position() const { return position_; }
  bool AtEnd() const { return position_ == text_.size(); }

  struct Piece {
    absl::string_view text;
    absl::string_view marker;  // what ends it; empty at the end of the completion
  };
  // Reads up to and with the next of `markers`.
  Piece ReadTo(const MarkerSet& markers) {
    const MarkerSet::Hit hit = markers.Find(text_, position_);
    const size_t end = hit.match == MarkerSet::Match::kWhole ? hit.position : text_.size();
    const Piece piece = {text_.substr(position_, end - position_), hit.marker};
    position_ = end + hit.marker.size();
    return piece;
  }

  bool Consume(absl::string_view expected) {
    if (!absl::StartsWith(text_.substr(position_), expected)) return false;
    position_ += expected.size();
    return true;
  }

  absl::Status Expected(absl::string_view what) const {
    return Corrupt("completion: byte ", position_, ": expected ", what, ", found ",
                   AtEnd() ? "the end" : Quoted(text_.substr(position_, kShownBytes)));
  }

 private:
  static constexpr size_t kShownBytes = 24;

  absl::string_view text_;
  size_t position_ = 0;
};

// Reads the parameters of one call, whose first one has just begun, up to and with the marker
// that ends the call, or to the end of the completion where that comes right after a parameter.
absl::Status ReadParameters(Reader& reader, std::string& arguments) {
  HashSet<absl::string_view> keys;
  while (true) {
    if (!reader.Consume(markup::kKeyStart)) return reader.Expected("a parameter's name");
    const size_t key_at = reader.position();
    const Reader::Piece key = reader.ReadTo(markup::kAfterKey);
    if (key.marker != markup::kStringTrue && key.marker != markup::kStringFalse) {
      return Corrupt("completion: byte ", key_at, ": a parameter without string=\"true|false\"");
    }
    const size_t value_at = reader.position();
    const Reader::Piece value = reader.ReadTo(markup::kAfterValue);
    if (value.marker != markup::kParameterEnd && value.marker != markup::kParameterEndBroken) {
      return Corrupt("completion: byte ", value_at, ": a value without ", markup::kParameterEnd);
    }
    if (!keys.insert(key.text).second) {
      return Corrupt("completion: byte ", key_at, ": parameter ", Quoted(key.text), " is repeated");
    }
    if (keys.size() > 1) arguments.append(", ");
    arguments.push_back('"');
    AppendJsonEscaped(key.text, &arguments);
    arguments.append("\": ");
    if (key.marker == markup::kStringTrue) {
      arguments.push_back('"');
      AppendJsonEscaped(value.text, &arguments);
      arguments.push_back('"');
    } else {
      absl::StrAppend(&arguments, value.text);
    }
    if (!reader.Consume(kLineEnd)) return reader.Expected("\">\" and a line break");
    if (reader.AtEnd() || reader.Consume(markup::kInvokeEnd)) return absl::OkStatus();
    if (!reader.Consume(markup::kParameter)) {
      return reader.Expected("a parameter or the end of the call");
    }
  }
}

absl::Status ReadToolCalls(Reader& reader, std::vector<ToolCall>& calls) {
  while (!reader.AtEnd()) {
    if (!reader.Consume(kLineEnd)) return reader.Expected("\">\" and a line break");
    if (reader.Consume(markup::kCallsEnd)) break;
    if (!reader.Consume(markup::kInvoke)) {
      return reader.Expected("a tool call or the end of the tool calls");
    }
    const size_t name_at = reader.position();
    Reader::Piece head = reader.ReadTo(markup::kAfterToolName);
    head.text.remove_prefix(markup::SkipPythonSpace(head.text, 0));
    if (!absl::ConsumePrefix(&head.text, markup::kToolNameStart)) {
      return Corrupt("completion: byte ", name_at, ": a tool call without a name");
    }
    const std::optional<absl::string_view> name = markup::ToolName(head.text);
    if (!name) {
      return Corrupt("completion: byte ", name_at,
                     ": a tool's name without \">\" and a line break");
    }
    ToolCall call = {.id = {}, .name = std::string(*name), .arguments = "{"};
    if (head.marker == markup::kParameter) {
      DSV4_RETURN_IF_ERROR(ReadParameters(reader, call.arguments));
    }
    call.arguments.push_back('}');
    calls.push_back(std::move(call));
  }
  return absl::OkStatus();
}

absl::Status CheckText(absl::string_view text, absl::string_view field) {
  const MarkerSet::Hit hit = kNoPlaceInText.Find(text, 0);
  // A partial marker at the text's end is text.
  if (hit.match != MarkerSet::Match::kWhole) return absl::OkStatus();
  return Corrupt("completion: ", field, " holds the marker ", hit.marker);
}

}  // namespace

absl::StatusOr<ChatMessage> ParseCompletion(absl::string_view completion, ThinkingMode mode) {
  const size_t valid = ValidUtf8Prefix(completion);
  if (valid != completion.size()) {
    return InvalidArgument("completion: byte ", valid, " is not UTF-8");
  }
  ChatMessage message;
  message.role = "assistant";
  Reader reader(completion);
  if (mode == ThinkingMode::kThinking) {
    const Reader::Piece reasoning = reader.ReadTo(kReasoningEnds);
    if (reasoning.marker != markup::kThinkEnd) {
      return Corrupt("completion: reasoning without ", markup::kThinkEnd);
    }
    DSV4_RETURN_IF_ERROR(CheckText(reasoning.text, "reasoning"));
    message.reasoning_content = std::string(reasoning.text);
  }
  const Reader::Piece content = reader.ReadTo(kContentEnds);
  DSV4_RETURN_IF_ERROR(CheckText(content.text, "content"));
  message.content = std::string(content.text);
  if (content.marker == kCallsStart) {
    DSV4_RETURN_IF_ERROR(ReadToolCalls(reader, message.tool_calls));
    reader.Consume(markup::kEndOfSentence);
  } else if (content.marker.empty()) {
    return Corrupt("completion: no ", markup::kEndOfSentence, " at the end");
  }
  if (!reader.AtEnd()) return reader.Expected("the end");
  return message;
}

}  // namespace dsv4
