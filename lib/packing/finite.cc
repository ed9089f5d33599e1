// SPDX-License-Identifier: Apache-2.0
#include "lib/packing/finite.h"

#include <cstring>

namespace dsv4 {

// Plain loops without early exit: they run at memory speed.
bool HasNonFinite(DType dtype, const uint8_t* data, int64_t bytes) {
  uint32_t bad = 0;
  switch (dtype) {
    case DType::kF32:
      for (int64_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t bits;
        std::memcpy(&bits, data + i, 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
      }
      break;
    case DType::kBF16:
      for (int64_t i = 0; i + 2 <= bytes; i += 2) {
        uint16_t bits;
        std::memcpy(&bits, data + i, 2);
        bad |= (bits & 0x7f80u) == 0x7f80u;
      }
      break;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < bytes; ++i) bad |= (data[i] & 0x7fu) == 0x7fu;
      break;
    case DType::kF8E8M0:
      for (int64_t i = 0; i < bytes; ++i) bad |= data[i] == 0xffu;
      break;
    default:
      break;
  }
  return bad != 0;
}

}  // namespace dsv4
