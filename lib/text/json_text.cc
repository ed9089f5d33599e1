// SPDX-License-Identifier: Apache-2.0
#include "lib/text/json_text.h"

#include <vector>

#include "absl/strings/strip.h"
#include "lib/base/hex_number.h"
#include "lib/io/json.h"

namespace dsv4 {
namespace {

// The scalars of JSON. Each function takes its piece off the front of *text; false when none is
// there, and *text is then of no more use.

bool TakeString(absl::string_view* text) {
  if (!absl::ConsumePrefix(text, "\"")) return false;
  for (size_t i = 0; i < text->size(); ++i) {
    const unsigned char c = (*text)[i];
    if (c < 0x20) return false;
    if (c == '"') {
      text->remove_prefix(i + 1);
      return true;
    }
    if (c != '\\') continue;
    if (++i == text->size()) return false;
    if ((*text)[i] == 'u') {
      if (text->size() - i < 5 || !HexNumber(text->substr(i + 1, 4))) return false;
      i += 4;
    } else if (absl::string_view("\"\\/bfnrt").find((*text)[i]) == absl::string_view::npos) {
      return false;
    }
  }
  return false;
}

bool TakeScalar(absl::string_view* text) {
  switch (text->front()) {
    case '"':
      return TakeString(text);
    case 't':
      return absl::ConsumePrefix(text, "true");
    case 'f':
      return absl::ConsumePrefix(text, "false");
    case 'n':
      return absl::ConsumePrefix(text, "null");
    default:
      return TakeJsonNumber(text);
  }
}

void SkipSpace(absl::string_view* text) {
  while (!text->empty() &&
         absl::string_view(" \t\n\r").find(text->front()) != absl::string_view::npos) {
    text->remove_prefix(1);
  }
}

}  // namespace

bool IsJson(absl::string_view text) {
  enum class Expected { kValue, kValueOrEnd, kKey, kKeyOrEnd, kCommaOrEnd };
  Expected expected = Expected::kValue;
  std::vector<char> closers;  // of the open arrays and objects, the innermost last
  for (SkipSpace(&text); !text.empty(); SkipSpace(&text)) {
    const char c = text.front();
    const bool may_end = expected != Expected::kValue && expected != Expected::kKey;
    if (may_end && !closers.empty() && c == closers.back()) {
      text.remove_prefix(1);
      closers.pop_back();
      expected = Expected::kCommaOrEnd;
    } else if (expected == Expected::kCommaOrEnd) {
      if (closers.empty() || c != ',') return false;
      text.remove_prefix(1);
      expected = closers.back() == '}' ? Expected::kKey : Expected::kValue;
    } else if (expected == Expected::kKey || expected == Expected::kKeyOrEnd) {
      if (!TakeString(&text)) return false;
      SkipSpace(&text);
      if (!absl::ConsumePrefix(&text, ":")) return false;
      expected = Expected::kValue;
    } else if (c == '[' || c == '{') {
      text.remove_prefix(1);
      closers.push_back(c == '[' ? ']' : '}');
      expected = c == '[' ? Expected::kValueOrEnd : Expected::kKeyOrEnd;
    } else {
      if (!TakeScalar(&text)) return false;
      expected = Expected::kCommaOrEnd;
    }
  }
  return expected == Expected::kCommaOrEnd && closers.empty();
}

void AppendJsonEscaped(absl::string_view text, std::string* out) {
  constexpr char kHexDigits[] = "0123456789abcdef";
  constexpr absl::string_view kCharacters = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = text[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text.data() + done, i - done);
    done = i + 1;
    const size_t named = kCharacters.find(text[i]);
    if (named != absl::string_view::npos) {
      out->append({'\\', kNames[named]});
    } else {
      out->append({'\\', 'u', '0', '0', kHexDigits[c >> 4], kHexDigits[c & 15]});
    }
  }
  out->append(text.data() + done, text.size() - done);
}

}  // namespace dsv4
