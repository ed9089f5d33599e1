// SPDX-License-Identifier: Apache-2.0
// How a backend stores rows of activations, for code that reads and writes them on the host. A
// backend exports it next to its kernels (Manifest).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/op/op.h"

namespace dsv4 {

struct HostRows {
  DType activations = DType::kBF16;
  // Functions of quantised rows of `width` elements. All null: they are round trips, stored as
  // other activations.
  int64_t (*quantized_bytes)(int64_t width) = nullptr;
  // The elements of a row, which are exact in bf16: `to` [width].
  void (*decode)(const std::byte* row, int64_t width, uint16_t* to) = nullptr;
  // Quantises elements [begin, begin + count) of a row, `from` [count], and leaves the others.
  // `begin` and `count` are multiples of 128.
  void (*encode)(const float* from, int64_t width, int64_t begin, int64_t count,
                 std::byte* row) = nullptr;

  QuantizedRows quantized() const {
    return decode == nullptr ? QuantizedRows::kRoundTrip : QuantizedRows::kCodes;
  }
};

}  // namespace dsv4
