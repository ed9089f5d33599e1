// SPDX-License-Identifier: Apache-2.0
// UTF-8: where bytes stop being it, and how broken bytes and surrogates are shown. Also the code
// points that the Unicode data of the HF tokenizers library has and PCRE2's lacks.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// The well-formed or ill-formed unit that a text begins with.
struct Utf8Unit {
  enum class Kind {
    kCharacter,   // one whole character
    kIncomplete,  // a proper start of a character, then the end of the text
    kInvalid,     // bytes that no following bytes could make a character of
  };
  Kind kind;
  size_t length;  // bytes; for kIncomplete and kInvalid those of the maximal ill-formed part
};

// REQUIRES: `text` is not empty.
Utf8Unit FirstUtf8Unit(absl::string_view text);

// Bytes of the longest well-formed start of `text`: text.size() when all of it is UTF-8.
size_t ValidUtf8Prefix(absl::string_view text);

// Appends `bytes` to `out` with each maximal ill-formed part replaced by U+FFFD (the Unicode
// standard's "substitution of maximal subparts", as Python and Rust decode), except an incomplete
// character at the end. Returns the bytes used, at most 3 less than all.
size_t AppendRepairedUtf8(absl::string_view bytes, std::string* out);

inline constexpr absl::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// WTF-8 is UTF-8 in which a surrogate may stand as the three bytes of its number: what Python's
// strings can hold and UTF-8 cannot. ValidUtf8Prefix for it.
size_t ValidWtf8Prefix(absl::string_view text);

// Appends `text` with each surrogate replaced by one U+FFFD. REQUIRES: `text` is WTF-8.
void AppendSurrogatesReplaced(absl::string_view text, std::string* out);

// Code points that Unicode 15.0, 15.1 and 16.0 gave the general category `category` (L, M, N, P or
// S; empty for others), as items of a PCRE2 character class: "\x{1c89}-\x{1c8a}...".
absl::string_view NewCodePointsOfCategory(char category);

}  // namespace dsv4
