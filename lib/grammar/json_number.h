// SPDX-License-Identifier: Apache-2.0
// Numbers within bounds, as JSON writes them.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

// A number as its digits: no leading zeros but a single one, no trailing zeros of the fraction.
struct Decimal {
  bool negative = false;  // never of zero
  std::string integer = "0", fraction;

  bool IsZero() const { return integer == "0" && fraction.empty(); }
  // Of a number's JSON text. Unsupported for more than about 300 digits before or after the point.
  static absl::StatusOr<Decimal> FromJson(absl::string_view text);
};

struct NumberSpec {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  bool integer = false;  // no fraction but zeros
  bool exponent = true;  // allowed, where nothing below is asked for
  // Each of them must hold.
  std::optional<Bound> minimum{}, exclusive_minimum{}, maximum{}, exclusive_maximum{};
  std::optional<Decimal> multiple_of{};  // above 0
};

// The texts of the numbers of `spec`. An exponent is allowed where the spec asks for nothing but
// integers or numbers. Unsupported for a divisor that needs too many states.
absl::StatusOr<Expr> NumberLanguage(ExpressionPool* pool, const NumberSpec& spec);
// All texts of `value` without an exponent.
Expr NumberText(ExpressionPool* pool, const Decimal& value);

}  // namespace dsv4::grammar
