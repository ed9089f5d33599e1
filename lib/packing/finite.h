// SPDX-License-Identifier: Apache-2.0
// Whether stored weights are numbers.
#pragma once

#include <cstdint>

#include "lib/tensor/dtype.h"

namespace dsv4 {

// True if any element is NaN or infinite. False for formats without such codes.
bool HasNonFinite(DType dtype, const uint8_t* data, int64_t bytes);

}  // namespace dsv4
