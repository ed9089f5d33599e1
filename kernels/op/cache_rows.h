// SPDX-License-Identifier: Apache-2.0
// Rows of the cache in each of their formats (kernels/op/kv_layout.h), from and to f32, in host
// memory. The quantisers are part of the formats that hold their values: those keep the bytes that
// the published quantiser gives.
#pragma once

#include <cstdint>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

// Writes the row of slot `slot` in block `block`. `row` goes through its quantiser first: act_quant
// 64 of the first 448 elements of 512, fp4_act_quant of all 128 of an index key. kFp8PerTensor is a
// quantiser of its own, in place of that. `row` is used up. Without `quantise`, bf16 and f32 rows
// keep their values.
void StoreRow(const RowPool& pool, int32_t block, int64_t slot, float* row, bool quantise = true);

// Reads it back.
void LoadRow(const RowPool& pool, int32_t block, int64_t slot, float* row);

// A query [512] that meets kFp8PerTensor rows: through e4m3 with their scale, and back. A NaN stays
// one; normed queries have no infinity.
void QuantiseQuery(float* query);

}  // namespace dsv4
