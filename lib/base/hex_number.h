// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// `digits` as a number in base 16; nullopt unless it is 1 to 8 hexadecimal digits.
inline std::optional<uint32_t> HexNumber(absl::string_view digits) {
  uint32_t number = 0;
  if (!absl::c_all_of(digits, absl::ascii_isxdigit) || !absl::SimpleHexAtoi(digits, &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace dsv4
