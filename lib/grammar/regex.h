// SPDX-License-Identifier: Apache-2.0
// The regular subset of ECMA-262's regular expressions in Unicode mode, as JSON Schema uses them,
// and what Python writes otherwise: (?P<name>...), (?i), \A, \Z. Groups capture nothing. Lazy
// quantifiers match the same texts as greedy ones.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {

inline constexpr size_t kMaxPatternBytes = 16 << 10;

enum class Anchoring {
  kWhole,   // the whole text must match
  kSearch,  // a part of the text must match; ^ and $ anchor it
};

// The texts that match `pattern`. Errors: InvalidArgument for wrong syntax, naming the byte (from
// 1); Unsupported for back references, for an anchor that is not at an end of the pattern, and for
// assertions where the language is not known to be regular:
// - look-ahead, \b and \B within a group that is repeated or does not end with the pattern
// - look-behind that does not see the whole beginning of the pattern
absl::StatusOr<Expr> RegexLanguage(ExpressionPool* pool, absl::string_view pattern,
                                   Encoding encoding, Anchoring anchoring);

}  // namespace dsv4::grammar
