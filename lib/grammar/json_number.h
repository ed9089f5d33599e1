// SPDX-License-Identifier: Apache-2.0
// Languages of JSON numbers within bounds.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

// The digits of a number, without leading zeros (except a single one) and trailing zeros of the
// fraction.
struct Decimal {
  bool negative = false;  // false for zero
  std::string integer = "0", fraction;

  bool IsZero() const { return integer == "0" && fraction.empty(); }
  // Parses a number's JSON text. Errors: Unsupported for more than about 300 digits before or after
  // the point.
  static absl::StatusOr<Decimal> FromJson(absl::string_view text);
};

struct NumberSpec {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  bool integer = false;  // the fraction, if any, is zeros
  bool exponent = true;  // an exponent is allowed, if none of the conditions below is set
  // All of these must hold.
  std::optional<Bound> minimum{}, exclusive_minimum{}, maximum{}, exclusive_maximum{};
  std::optional<Decimal> multiple_of{};  // above 0
};

// The texts of the numbers that match `spec`. Errors: Unsupported for a divisor that needs too many
// states.
absl::StatusOr<Expr> NumberLanguage(ExpressionPool* pool, const NumberSpec& spec);
// All texts of `value` without an exponent.
Expr NumberText(ExpressionPool* pool, const Decimal& value);

}  // namespace dsv4::grammar
