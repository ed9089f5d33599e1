// SPDX-License-Identifier: Apache-2.0
// Grammars in the notation of llama.cpp's GBNF: `name ::= choice | choice`, with "texts",
// [classes], `.`, groups, ?, *, +, {m}, {m,}, {m,n} and # comments. The language is that of the
// rule `root`.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

inline constexpr size_t kMaxEbnfBytes = 1 << 20;

// Errors: InvalidArgument, naming the line, for wrong syntax and for a rule that is defined twice
// or not at all. ExpressionPool::Compile finds left recursion.
absl::StatusOr<Expr> EbnfLanguage(ExpressionPool* pool, absl::string_view text);

}  // namespace dsv4::grammar
