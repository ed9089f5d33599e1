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

}  // namespace dsv4
