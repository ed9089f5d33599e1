// SPDX-License-Identifier: Apache-2.0
// Exact selection of the highest scores of one row.
#pragma once

#include <cstdint>

namespace dsv4 {

// out[0..k) = the indices of the k highest scores, ascending; of equal scores the lowest indices.
// NaN counts as higher or lower than any number by its sign. Uses up `scores`, which has room for n
// rounded up to 32. REQUIRES: 0 < k < n; no score is -0.
void SelectTopK(float* scores, int64_t n, int32_t k, int32_t* out);

}  // namespace dsv4
