// SPDX-License-Identifier: Apache-2.0
// Decimal numbers compare digit by digit, so each bound is a regular language.
#include "lib/grammar/json_number.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4::grammar {
namespace {

constexpr int64_t kMaxDigits = 320;
constexpr int64_t kMaxMultipleStates = 4096;

class Numbers {
 public:
  explicit Numbers(ExpressionPool* pool)
      : pool_(pool),
        digits_(pool->Repeat(Digit('0', '9'), 0, kUnbounded)),
        zeros_(pool->Repeat(Digit('0', '0'), 0, kUnbounded)),
        point_(pool->Literal(".")),
        fraction_(pool->Optional(pool->Concat({point_, Digit('0', '9'), digits_}))),
        no_fraction_(pool->Optional(pool->Concat({point_, Digit('0', '0'), zeros_}))),
        integer_(pool->AnyOf({Digit('0', '0'), pool->Concat(Digit('1', '9'), digits_)})) {}

  Expr Digit(int low, int high) {
    ByteSet set;
    for (int c = low; c <= high; ++c) set.set(static_cast<size_t>(c));
    return pool_->Bytes(set);
  }
  Expr Digits(size_t count) {
    return pool_->Repeat(Digit('0', '9'), static_cast<uint32_t>(count),
                         static_cast<uint32_t>(count));
  }
  Expr Integer() const { return integer_; }
  Expr Fraction(bool integer) const { return integer ? no_fraction_ : fraction_; }
  Expr Sign() { return pool_->Optional(pool_->Literal("-")); }

  // At most 307, so that what is read as a double is finite if the digits before it are few.
  Expr Exponent(bool integer) {
    const Expr size = pool_->AnyOf({Digits(1), Digits(2), pool_->Concat(Digit('1', '2'), Digits(2)),
                                    pool_->Concat(pool_->Literal("30"), Digit('0', '7'))});
    ByteSet e, signs;
    e.set('e').set('E');
    signs.set('+');
    if (!integer) signs.set('-');
    return pool_->Optional(
        pool_->Concat({pool_->Bytes(e), pool_->Optional(pool_->Bytes(signs)), size}));
  }

  // Numbers without a sign of `value` or more.
  Expr AtLeast(const Decimal& value, bool exclusive) {
    const std::string& digits = value.integer;
    std::vector<Expr> parts = {
        pool_->Concat({Digit('1', '9'), Digits(digits.size()), digits_, fraction_})};
    for (size_t i = 0; i < digits.size(); ++i) {
      if (digits[i] == '9') continue;
      parts.push_back(pool_->Concat({pool_->Literal(digits.substr(0, i)), Digit(digits[i] + 1, '9'),
                                     Digits(digits.size() - 1 - i), fraction_}));
    }
    parts.push_back(
        pool_->Concat(pool_->Literal(digits), FractionAtLeast(value.fraction, exclusive)));
    return pool_->AnyOf(std::move(parts));
  }

  Expr AtMost(const Decimal& value, bool exclusive) {
    const std::string& digits = value.integer;
    std::vector<Expr> parts;
    if (digits.size() > 1) {
      parts.push_back(pool_->Concat(
          pool_->AnyOf({Digit('0', '0'),
                        pool_->Concat(Digit('1', '9'),
                                      pool_->Repeat(Digit('0', '9'), 0,
                                                    static_cast<uint32_t>(digits.size() - 2)))}),
          fraction_));
    }
    for (size_t i = 0; i < digits.size(); ++i) {
      const int lowest = i == 0 && digits.size() > 1 ? '1' : '0';
      if (digits[i] <= lowest) continue;
      parts.push_back(
          pool_->Concat({pool_->Literal(digits.substr(0, i)), Digit(lowest, digits[i] - 1),
                         Digits(digits.size() - 1 - i), fraction_}));
    }
    parts.push_back(
        pool_->Concat(pool_->Literal(digits), FractionAtMost(value.fraction, exclusive)));
    return pool_->AnyOf(std::move(parts));
  }

  Expr Exactly(const Decimal& value) {
    const Expr fraction = value.fraction.empty()
                              ? no_fraction_
                              : pool_->Concat({point_, pool_->Literal(value.fraction), zeros_});
    return pool_->Concat(pool_->Literal(value.integer), fraction);
  }

  absl::StatusOr<Expr> MultipleOf(const Decimal& divisor);

 private:
  Expr FractionAtLeast(const std::string& fraction, bool exclusive) {
    const Expr more = pool_->Concat({digits_, Digit('1', '9'), digits_});
    if (fraction.empty()) return exclusive ? pool_->Concat(point_, more) : fraction_;
    Expr rest = exclusive ? more : digits_;
    for (size_t i = fraction.size(); i-- > 0;) {
      const Expr equal = pool_->Concat(Digit(fraction[i], fraction[i]), rest);
      rest = fraction[i] == '9'
                 ? equal
                 : pool_->AnyOf({equal, pool_->Concat(Digit(fraction[i] + 1, '9'), digits_)});
    }
    return pool_->Concat(point_, rest);
  }

  Expr FractionAtMost(const std::string& fraction, bool exclusive) {
    if (fraction.empty()) return exclusive ? kFail : no_fraction_;
    // What may follow digits that are equal so far; a text that ends before the last is smaller.
    Expr rest = exclusive ? kFail : zeros_;
    for (size_t i = fraction.size(); i-- > 0;) {
      Expr from = pool_->Concat(Digit(fraction[i], fraction[i]), rest);
      if (fraction[i] != '0') {
        from = pool_->AnyOf({from, pool_->Concat(Digit('0', fraction[i] - 1), digits_)});
      }
      rest = pool_->Optional(from);
      if (i == 0) rest = from;
    }
    return pool_->Optional(pool_->Concat(point_, rest));
  }

  ExpressionPool* pool_;
  const Expr digits_, zeros_, point_, fraction_, no_fraction_, integer_;
};

// One state for each remainder of the digits so far, and for each digit after the point.
absl::StatusOr<Expr> Numbers::MultipleOf(const Decimal& divisor) {
  const int64_t places = static_cast<int64_t>(divisor.fraction.size());
  int64_t modulus = 0;
  for (const char digit : divisor.integer + divisor.fraction) {
    modulus = modulus * 10 + (digit - '0');
    if (modulus * (places + 2) > kMaxMultipleStates) {
      return Unsupported("its digits without the point, times (decimal places + 2), exceed ",
                         kMaxMultipleStates);
    }
  }
  if (modulus == 0) return InvalidArgument("0 is not allowed");
  // state(place, remainder): place 0 is before the point, place p + 1 has p digits after it.
  std::vector<Expr> states(static_cast<size_t>(modulus * (places + 2)));
  for (Expr& state : states) state = pool_->DeclareRule("multipleOf");
  const auto state = [&](int64_t place, int64_t remainder) {
    return states[static_cast<size_t>(place * modulus + remainder)];
  };
  for (int64_t place = 0; place <= places + 1; ++place) {
    for (int64_t remainder = 0; remainder < modulus; ++remainder) {
      const int64_t after_point = std::max<int64_t>(place - 1, 0);
      int64_t scaled = remainder;
      for (int64_t i = after_point; i < places; ++i) scaled = scaled * 10 % modulus;
      const bool divides = scaled == 0;
      std::vector<Expr> parts;
      if (place == places + 1) {
        if (divides) parts.push_back(zeros_);
      } else {
        // A digit must follow the point. The language of numbers makes sure of that.
        if (divides) parts.push_back(kEmpty);
        if (place == 0) parts.push_back(pool_->Concat(point_, state(1, remainder)));
        for (int digit = 0; digit <= 9; ++digit) {
          parts.push_back(
              pool_->Concat(Digit('0' + digit, '0' + digit),
                            state(place == 0 ? 0 : place + 1, (remainder * 10 + digit) % modulus)));
        }
      }
      pool_->DefineRule(state(place, remainder), pool_->AnyOf(std::move(parts)));
    }
  }
  return state(0, 0);
}

}  // namespace

absl::StatusOr<Decimal> Decimal::FromJson(absl::string_view text) {
  Decimal value;
  value.negative = !text.empty() && text[0] == '-';
  if (value.negative) text.remove_prefix(1);
  const size_t e = text.find_first_of("eE");
  int64_t exponent = 0;
  if (e != absl::string_view::npos) {
    absl::string_view digits = text.substr(e + 1);
    const bool below = digits[0] == '-';
    if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
    for (const char digit : digits) {
      exponent = std::min<int64_t>(exponent * 10 + (digit - '0'), 1'000'000'000);
    }
    if (below) exponent = -exponent;
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  int64_t scale = static_cast<int64_t>(digits.size()) + exponent;  // digits before the point
  if (point < text.size()) digits += std::string(text.substr(point + 1));
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
  digits.erase(0, first);
  scale -= static_cast<int64_t>(first);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.empty()) return Decimal{};
  const int64_t count = static_cast<int64_t>(digits.size());
  if (scale > kMaxDigits || count - scale > kMaxDigits) {
    return Unsupported("more than ", kMaxDigits,
                       " digits before or after the point are not supported");
  }
  if (scale <= 0) {
    value.fraction = std::string(static_cast<size_t>(-scale), '0') + digits;
  } else if (scale >= count) {
    value.integer = digits + std::string(static_cast<size_t>(scale - count), '0');
  } else {
    value.integer = digits.substr(0, static_cast<size_t>(scale));
    value.fraction = digits.substr(static_cast<size_t>(scale));
  }
  return value;
}

absl::StatusOr<Expr> NumberLanguage(ExpressionPool* pool, const NumberSpec& spec) {
  Numbers numbers(pool);
  const Expr minus = pool->Literal("-");
  const Expr form = pool->Concat(numbers.Integer(), numbers.Fraction(spec.integer));
  const bool bound = spec.minimum || spec.exclusive_minimum || spec.maximum ||
                     spec.exclusive_maximum || spec.multiple_of;
  if (!bound) {
    const Expr exponent = spec.exponent ? numbers.Exponent(spec.integer) : kEmpty;
    return pool->Concat({numbers.Sign(), form, exponent});
  }
  // Languages of numbers without and with a sign; -0 counts as 0.
  std::vector<Expr> positive = {form}, negative = {form};
  const auto limit = [&](const std::optional<NumberSpec::Bound>& bound, bool lower) {
    if (!bound) return;
    const Decimal& value = bound->value;
    std::vector<Expr>& same = value.negative ? negative : positive;
    std::vector<Expr>& other = value.negative ? positive : negative;
    const bool away_from_zero = value.negative != lower;
    same.push_back(away_from_zero ? numbers.AtLeast(value, bound->exclusive)
                                  : numbers.AtMost(value, bound->exclusive));
    if (!away_from_zero) return;
    other.push_back(value.IsZero() && !bound->exclusive ? numbers.AtMost(value, false) : kFail);
  };
  limit(spec.minimum, true);
  limit(spec.exclusive_minimum, true);
  limit(spec.maximum, false);
  limit(spec.exclusive_maximum, false);
  // A maximum of 0 or more leaves negative numbers alone, except that -0 is not below 0.
  if (spec.exclusive_maximum && spec.exclusive_maximum->value.IsZero()) {
    negative.push_back(numbers.AtLeast({}, true));
  }
  if (spec.multiple_of) {
    DSV4_ASSIGN_OR_RETURN(const Expr multiple, numbers.MultipleOf(*spec.multiple_of));
    positive.push_back(multiple);
    negative.push_back(multiple);
  }
  return pool->AnyOf(
      {pool->AllOf(std::move(positive)), pool->Concat(minus, pool->AllOf(std::move(negative)))});
}

Expr NumberText(ExpressionPool* pool, const Decimal& value) {
  Numbers numbers(pool);
  const Expr sign = value.IsZero() ? numbers.Sign() : pool->Literal(value.negative ? "-" : "");
  return pool->Concat(sign, numbers.Exactly(value));
}

}  // namespace dsv4::grammar
