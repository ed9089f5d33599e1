// SPDX-License-Identifier: Apache-2.0
// The syntax of regular expressions: reads a pattern into a tree. regex.h turns it into a language.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {

// \w.
inline const CharSet kWordChars = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

struct RegexTree {
  enum class Kind {
    kChar,
    kSequence,
    kChoice,
    kRepeat,
    // Assertions, which match no characters.
    kStart,       // ^
    kEnd,         // $
    kLookAhead,   // the only part follows
    kLookBehind,  // the only part stands before
    kBoundary,    // \b
  };
  Kind kind = Kind::kSequence;
  CharSet set{};
  std::vector<RegexTree> parts{};
  uint32_t min = 0, max = 0;
  bool negated = false;  // of look-around and \b

  bool IsAssertion() const { return kind >= Kind::kStart; }
  bool HasAssertion() const {
    return IsAssertion() || std::any_of(parts.begin(), parts.end(),
                                        [](const RegexTree& part) { return part.HasAssertion(); });
  }
};

// Errors: InvalidArgument for wrong syntax and Unsupported, naming the byte (from 1).
absl::StatusOr<RegexTree> ReadRegex(absl::string_view pattern);

}  // namespace dsv4::grammar
