// SPDX-License-Identifier: Apache-2.0
// The numbers of rows that recorded steps are padded to.
#pragma once

#include <cstdint>

namespace dsv4 {

// The least one above `rows` >= 0: powers of two, and what lies half way between them.
constexpr int32_t NextStepSize(int32_t rows) {
  if (rows < 4) return rows + 1;
  int32_t power = 4;
  while (power <= rows / 2) power *= 2;
  return rows < power / 2 * 3 ? power / 2 * 3 : power * 2;
}

}  // namespace dsv4
