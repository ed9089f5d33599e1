// SPDX-License-Identifier: Apache-2.0
// The markup of a completion: the control markers and the parts of tool calls, for the parser of
// whole completions and the streaming parser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4::markup {

#define DSV4_DSML "｜DSML｜"
inline constexpr absl::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr absl::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
// Markers that begin another turn, of any role.
inline constexpr absl::string_view kUser = "<｜User｜>";
inline constexpr absl::string_view kAssistant = "<｜Assistant｜>";
inline constexpr absl::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr absl::string_view kThinkStart = "<think>";
inline constexpr absl::string_view kThinkEnd = "</think>";
inline constexpr absl::string_view kDsml = DSV4_DSML;
inline constexpr absl::string_view kOpening = "<" DSV4_DSML;
inline constexpr absl::string_view kClosing = "</" DSV4_DSML;
inline constexpr absl::string_view kCallsStart = "<" DSV4_DSML "tool_calls>";
inline constexpr absl::string_view kCallsEnd = "</" DSV4_DSML "tool_calls>";
inline constexpr absl::string_view kInvoke = "<" DSV4_DSML "invoke";
inline constexpr absl::string_view kInvokeEnd = "</" DSV4_DSML "invoke";
inline constexpr absl::string_view kParameter = "<" DSV4_DSML "parameter";
// A parameter's value ends at kParameterSlash; before it stands "<" or "<\n", else it is malformed.
inline constexpr absl::string_view kParameterSlash = "/" DSV4_DSML "parameter";
inline constexpr absl::string_view kParameterEnd = "</" DSV4_DSML "parameter";
inline constexpr absl::string_view kParameterEndBroken = "<\n/" DSV4_DSML "parameter";
inline constexpr absl::string_view kToolNameStart = "name=\"";
inline constexpr absl::string_view kKeyStart = " name=\"";
inline constexpr absl::string_view kStringTrue = "\" string=\"true\">";
inline constexpr absl::string_view kStringFalse = "\" string=\"false\">";
#undef DSV4_DSML

// A set of byte strings to search for. None is a prefix of another.
class MarkerSet {
 public:
  static constexpr size_t kMaxMarkers = 16;

  // Views of literals.
  constexpr MarkerSet(std::initializer_list<absl::string_view> markers) {
    for (const absl::string_view marker : markers) {
      first_[static_cast<uint8_t>(marker[0])] = true;
      markers_[count_++] = marker;
    }
  }

  enum class Match { kNone, kPartial, kWhole };
  struct Hit {
    Match match;
    size_t position;
    absl::string_view marker;  // of kWhole: one of the set's
    size_t end() const { return position + marker.size(); }
  };

  // What `text` has at `position`. kPartial: the text ends inside a marker, or `position` is its
  // end.
  Hit At(absl::string_view text, size_t position) const;

  // The leftmost marker at or after `from`. Without one: kPartial and the position where a marker
  // may begin that the text cuts off; or kNone and the text's end.
  Hit Find(absl::string_view text, size_t from) const;

 private:
  std::array<absl::string_view, kMaxMarkers> markers_{};
  size_t count_ = 0;
  std::array<bool, 256> first_{};
};

inline constexpr MarkerSet kAfterToolName = {kParameter, kInvokeEnd};
inline constexpr MarkerSet kAfterKey = {kStringTrue, kStringFalse, kParameterSlash};
inline constexpr MarkerSet kAfterValue = {kParameterEnd, kParameterEndBroken, kParameterSlash};

// Position of the first character at or after `from` that Python's \s does not match.
// REQUIRES: `text` is UTF-8 and `from` is not inside a character.
size_t SkipPythonSpace(absl::string_view text, size_t from);

// The tool's name in the text between kToolNameStart and a marker of kAfterToolName; nullopt if the
// text does not end as a name must.
std::optional<absl::string_view> ToolName(absl::string_view text);

}  // namespace dsv4::markup
