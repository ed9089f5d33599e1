// SPDX-License-Identifier: Apache-2.0
// The quantisers that contracts name, act_quant and fp4_act_quant, in plain f32 arithmetic: their
// scales, codes and round trips.
#pragma once

#include <cstdint>

namespace dsv4 {

// e4m3 and e2m1 of `value`: round to nearest even, saturating at 448 and 6. NaN becomes NaN in
// e4m3 and the largest magnitude in e2m1.
uint8_t EncodeE4M3(float value);
uint8_t EncodeE2M1(float value);

// The quantisers' scale of one run: 2^ceil(log2(max(|values|, floor) / limit)), with limit 448 and
// floor 1e-4 for e4m3, 6 and 6 * 2^-126 for e2m1.
float E4M3RunScale(const float* values, int64_t count);
float E2M1RunScale(const float* values, int64_t count);

// Round trips in place; `count` is a multiple of `run`, which is 64 or 128 (32 for fp4).
void ActQuant(float* values, int64_t count, int64_t run);
void Fp4ActQuant(float* values, int64_t count);

// E4M3ToFloat of all 256 bytes.
const float* E4M3Table();

}  // namespace dsv4
