// SPDX-License-Identifier: Apache-2.0
// The formats that a file of block products unpacks itself: each has its kType.
#pragma once

#include "lib/tensor/block_format.h"

namespace dsv4 {

template <class... Formats>
struct BlockFormats {
  // Calls f<Format>() for the format of this type; false if it is none of these.
  template <class F>
  static bool With(BlockType type, const F& f) {
    return ((type == Formats::kType && (f.template operator()<Formats>(), true)) || ...);
  }
};

}  // namespace dsv4
