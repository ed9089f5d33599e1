// SPDX-License-Identifier: Apache-2.0
// Regular expressions of ECMA-262 in Unicode mode, as JSON Schema uses them: the part of them that
// is regular. Groups capture nothing, and lazy quantifiers match what greedy ones do.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {

inline constexpr size_t kMaxPatternBytes = 16 << 10;

enum class Anchoring {
  kWhole,   // the whole text must match
  kSearch,  // some part of it must, as far as ^ and $ do not say otherwise
};

// The texts that match `pattern`. Errors name the character, counted from 1. InvalidArgument: not a
// pattern. Unsupported: look-around, back references, \b, \B, \p, and an anchor that is not at an
// end of the pattern.
absl::StatusOr<Expr> RegexLanguage(ExpressionPool* pool, absl::string_view pattern,
                                   Encoding encoding, Anchoring anchoring);

}  // namespace dsv4::grammar
