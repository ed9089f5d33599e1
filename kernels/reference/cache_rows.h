// SPDX-License-Identifier: Apache-2.0
// Rows of the cache in each of their formats (kernels/op/kv_layout.h), from and to f32. The
// quantisers are part of the formats that hold their values: those keep the bytes that the
// published quantiser gives.
#pragma once

#include <cstdint>

#include "kernels/op/attention.h"

namespace dsv4::reference {

// Writes the row of slot `slot` in block `block`. `row` [512], or [128] in the index formats, goes
// through the quantiser of `point` first, where it is in force: act_quant 64 of the first 448
// elements, or for kQuantIndexKey fp4_act_quant of all. kFp8PerTensor is a quantiser of its own,
// in place of that. `row` is used up.
void StoreRow(const LaunchContext& context, Point point, const RowPool& pool, int32_t block,
              int64_t slot, float* row);

// Reads it back.
void LoadRow(const RowPool& pool, int32_t block, int64_t slot, float* row);

// A query [512] that meets kFp8PerTensor rows: through e4m3 with their scale, and back. A NaN stays
// one; normed queries have no infinity.
void QuantiseQuery(float* query);

}  // namespace dsv4::reference
