// SPDX-License-Identifier: Apache-2.0
// A compiled language, for tests: which texts match it, and which are starts of such.
#pragma once

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

struct Language {
  ExpressionPool pool;
  Expr root = kFail;

  Expr After(absl::string_view text) {
    Expr state = root;
    for (const char byte : text) {
      if (state == kFail) return kFail;  // and the pool may be exhausted
      pool.AllowWork();
      state = pool.Next(state, static_cast<uint8_t>(byte));
    }
    return state;
  }
  bool Matches(absl::string_view text) { return pool.Accepts(After(text)); }
  bool Begins(absl::string_view text) { return After(text) != kFail; }
};

// `build` makes the root in the pool: absl::StatusOr<Expr>(ExpressionPool*).
template <class Build>
absl::StatusOr<Language> Compiled(Build&& build) {
  Language language;
  absl::StatusOr<Expr> root = build(&language.pool);
  if (!root.ok()) return root.status();
  language.root = *root;
  if (absl::Status status = language.pool.Compile(language.root); !status.ok()) return status;
  return language;
}

}  // namespace dsv4::grammar
