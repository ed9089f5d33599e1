// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/pattern_reader.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/hex_number.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

absl::Status PatternReader::Bad(absl::string_view what) const {
  return InvalidArgument(Located(what));
}

absl::Status PatternReader::Refused(absl::string_view what) const {
  return Unsupported(Located(absl::StrCat(what, " not supported")));
}

bool PatternReader::Take(absl::string_view text) {
  if (!At(text)) return false;
  rest_.remove_prefix(text.size());
  return true;
}

absl::Status PatternReader::Number(uint32_t* number) {
  constexpr uint32_t kMaxRepetitions = 100000;
  const auto at_digit = [&] { return !rest_.empty() && absl::ascii_isdigit(rest_[0]); };
  if (!at_digit()) return Bad("expected a number");
  for (*number = 0; at_digit(); rest_.remove_prefix(1)) {
    *number = *number * 10 + static_cast<uint32_t>(rest_[0] - '0');
    if (*number > kMaxRepetitions) {
      return Refused(absl::StrCat("more than ", kMaxRepetitions, " repetitions are"));
    }
  }
  return absl::OkStatus();
}

absl::Status PatternReader::Repetitions(uint32_t* min, uint32_t* max) {
  DSV4_RETURN_IF_ERROR(Number(min));
  *max = *min;
  if (Take(",")) {
    *max = kUnbounded;
    if (!At("}")) DSV4_RETURN_IF_ERROR(Number(max));
  }
  if (!Take("}")) return Bad("expected \"}\"");
  if (*min <= *max) return absl::OkStatus();
  return Bad(absl::StrCat("the minimum of {", *min, ",", *max, "} is above its maximum"));
}

absl::StatusOr<uint32_t> PatternReader::Hex(size_t digits) {
  const std::optional<uint32_t> value = HexNumber(rest_.substr(0, digits));
  if (!value || rest_.size() < digits) {
    return Bad(digits == 1 ? "expected a hexadecimal digit"
                           : absl::StrCat("expected ", digits, " hexadecimal digits"));
  }
  rest_.remove_prefix(digits);
  return *value;
}

}  // namespace dsv4::grammar
