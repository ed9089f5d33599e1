// SPDX-License-Identifier: Apache-2.0
// The window rows that a token sees.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

// The first row that a token at `position` sees.
constexpr int64_t FirstWindowRow(int64_t position) {
  return std::max<int64_t>(0, position - (kWindowTokens - 1));
}
constexpr int64_t FirstWindowBlock(int64_t position) {
  return FirstWindowRow(position) / kWindowBlockTokens;
}

}  // namespace dsv4
