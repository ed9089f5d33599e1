// SPDX-License-Identifier: Apache-2.0
// Whether stored weights are numbers.
#pragma once

#include <cstdint>

#include "lib/tensor/dtype.h"

namespace dsv4 {

// True when any of the elements is no number, or infinite where the format can say so. False for
// formats all of whose codes are numbers.
bool HasNonFinite(DType dtype, const uint8_t* data, int64_t bytes);

}  // namespace dsv4
