// SPDX-License-Identifier: Apache-2.0
// Exact selection of the highest scores of one row.
#pragma once

#include <cstdint>

namespace dsv4 {

// out[0..k) = the indices of the k highest scores, ascending; of equal scores the lowest indices.
// Linear in n. NaN counts as higher than any number. REQUIRES: 0 < k < n; no score is -0.
void SelectTopK(const float* scores, int64_t n, int32_t k, int32_t* out);

}  // namespace dsv4
