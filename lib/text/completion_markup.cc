// SPDX-License-Identifier: Apache-2.0
#include "lib/text/completion_markup.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace dsv4::markup {

MarkerSet::Hit MarkerSet::At(absl::string_view text, size_t position) const {
  const absl::string_view rest = text.substr(position);
  bool partial = false;
  for (size_t i = 0; i < count_; ++i) {
    const absl::string_view marker = markers_[i];
    if (absl::StartsWith(rest, marker)) return {Match::kWhole, position, marker};
    partial |= absl::StartsWith(marker, rest);
  }
  return {partial ? Match::kPartial : Match::kNone, position, {}};
}

MarkerSet::Hit MarkerSet::Find(absl::string_view text, size_t from) const {
  for (size_t i = from; i < text.size(); ++i) {
    if (!first_[static_cast<uint8_t>(text[i])]) continue;
    const Hit hit = At(text, i);
    if (hit.match != Match::kNone) return hit;
  }
  return {Match::kNone, text.size(), {}};
}

namespace {

// Bytes of the whitespace character at the start of `text`; 0 when there is none.
size_t SpaceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const int first = byte(0);
  if ((first >= 0x09 && first <= 0x0D) || (first >= 0x1C && first <= 0x20)) return 1;
  if (first == 0xC2) return byte(1) == 0x85 || byte(1) == 0xA0 ? 2 : 0;  // U+0085, U+00A0
  if (first < 0xE1 || first > 0xE3) return 0;
  const int code = (first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  const bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
                     code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
  return space ? 3 : 0;
}

}  // namespace

size_t SkipPythonSpace(absl::string_view text, size_t from) {
  while (const size_t length = SpaceLength(text.substr(from))) from += length;
  return from;
}

std::optional<absl::string_view> ToolName(absl::string_view text) {
  // The published pattern ends in `$`, which also matches before a last line break.
  for (const absl::string_view ending : {"\">\n\n", "\">\n"}) {
    if (absl::EndsWith(text, ending)) return text.substr(0, text.size() - ending.size());
  }
  return std::nullopt;
}

}  // namespace dsv4::markup
