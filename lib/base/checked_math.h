// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic on untrusted or size-like numbers: overflow is reported, never wrapped.
#pragma once

#include <concepts>
#include <cstdint>

namespace dsv4 {

// *out = a * b; false on overflow.
template <std::integral T>
[[nodiscard]] constexpr bool CheckedMul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}

template <std::integral T>
constexpr T CeilDiv(T a, T b) {
  return a / b + (a % b != 0);
}

template <std::integral T>
constexpr T RoundUp(T a, T multiple) {
  return CeilDiv(a, multiple) * multiple;
}

}  // namespace dsv4
