// SPDX-License-Identifier: Apache-2.0
// Untrusted text as an error message may show it.
#pragma once

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// `text` in double quotes on one line: control bytes, quotes and broken UTF-8 escaped, cut after
// 200 bytes.
inline std::string Quoted(absl::string_view text) {
  constexpr size_t kMaxShown = 200;
  if (text.size() <= kMaxShown) return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kMaxShown)), "...\"");
}

// `text` as one line of a log or an error: each control character (C0, DEL and the two bytes of
// C1's) is a space, so that no name of a file's can write to a terminal or begin a line.
inline std::string OneLine(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xC2 && next >= 0x80 && next <= 0x9F) {
      line.push_back(' ');
      ++i;
    } else {
      line.push_back(c < 0x20 || c == 0x7F ? ' ' : text[i]);
    }
  }
  return line;
}

}  // namespace dsv4
