// SPDX-License-Identifier: Apache-2.0
// The numbers of rows that recorded steps are padded to.
#pragma once

#include <cstdint>

namespace dsv4 {

// The smallest size above `rows` >= 0. Sizes are powers of two and the middles between them, above
// 32 also the quarters. Padding rows cost little up to 16 rows, the height of one MMA. Above that
// they cost as much as other rows in operators that are bound by arithmetic, except the experts:
// padding rows choose none.
constexpr int32_t NextStepSize(int32_t rows) {
  if (rows < 4) return rows + 1;
  int32_t power = 4;
  while (power <= rows / 2) power *= 2;
  const int32_t apart = power < 32 ? power / 2 : power / 4;
  return rows / apart * apart + apart;
}

}  // namespace dsv4
