// SPDX-License-Identifier: Apache-2.0
// UTF-8: finds invalid bytes and replaces them and surrogates.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// The first unit of a text: a character or an ill-formed sequence.
struct Utf8Unit {
  enum class Kind {
    kCharacter,   // one whole character
    kIncomplete,  // the beginning of a character, then the end of the text
    kInvalid,     // bytes that cannot begin a character
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

// ValidUtf8Prefix for WTF-8: UTF-8 with surrogates, each encoded as three bytes. Python's strings
// can have unpaired surrogates, UTF-8 cannot.
size_t ValidWtf8Prefix(absl::string_view text);

// Appends `text` with each surrogate replaced by one U+FFFD. REQUIRES: `text` is WTF-8.
void AppendSurrogatesReplaced(absl::string_view text, std::string* out);

}  // namespace dsv4
