// SPDX-License-Identifier: Apache-2.0
// The numbers of rows that recorded steps are padded to.
#pragma once

#include <cstdint>

namespace dsv4 {

// The least one above `rows` >= 0: powers of two, what lies half way between them, and beyond 32
// the quarters as well. Rows of padding cost little up to 16, which one MMA takes; where arithmetic
// bounds operators, as much as other rows, except for the experts, which they do not choose.
constexpr int32_t NextStepSize(int32_t rows) {
  if (rows < 4) return rows + 1;
  int32_t power = 4;
  while (power <= rows / 2) power *= 2;
  const int32_t apart = power < 32 ? power / 2 : power / 4;
  return rows / apart * apart + apart;
}

}  // namespace dsv4
