// SPDX-License-Identifier: Apache-2.0
// Where packed weights and quantised activation rows have their elements, for device and host code:
// the order of the fragments of mma.sync m16n8k32 (m16n8k16 for bf16), weights on the M side and
// activation rows on the N side. Lane 4 g + t of a warp holds weight rows g and g + 8 of a tile of
// 16 and, of each K = 32 step, elements 8 t .. 8 t + 7. (The instruction numbers a step's elements
// otherwise, but any order does that both operands share.)
//
// A K slice is the 128 elements of K that share an activation scale: four steps. Tiles are the
// outer, K slices the next dimension of a packed weight; of each K slice, lane by lane in vectors
// of 16 bytes,
//   fp8:  step j: row g +0..3, row g + 8 +0..3, row g +4..7, row g + 8 +4..7;
//   fp4:  steps 2 j and 2 j + 1, of each a word for elements 0 .. 3 of both rows and one for 4 .. 7
//         (arch/e2m1_words.cuh); nvfp4 the same, with words for f16 on every target;
//   bf16: half steps, of elements 8 t .. 8 t + 3 and 8 t + 4 .. 8 t + 7: row g +0..1, row g + 8
//   +0..1,
//         row g +2..3, row g + 8 +2..3.
// Scales: fp8 as stored; fp4 four bytes, one for each step, for each row of each K slice of a tile,
// in the order 0, 8, 1, 9, .. 7, 15; nvfp4 such a block of the first 16 elements of the steps, and
// one of the second.
#pragma once

#include <cstdint>

namespace dsv4::sm12x {

inline constexpr int kTileRows = 16;  // weight rows of a tile
inline constexpr int kKSlice = 128;   // elements of K in a K slice

// Bytes of one K slice of one tile.
inline constexpr int kFp8SliceBytes = kTileRows * kKSlice;
inline constexpr int kFp4SliceBytes = kTileRows * kKSlice / 2;
inline constexpr int kBf16SliceBytes = kTileRows * kKSlice * 2;

// Bytes of a quantised row of `dim` elements, a multiple of 128: e4m3 codes, then one ue8m0 scale
// for each run of 128, padded to a multiple of 16. Never longer than the bf16 row.
constexpr int64_t QuantizedRowBytes(int64_t dim) { return (dim + dim / kKSlice + 15) / 16 * 16; }

// Where a row has the code of element `k`, a multiple of 8, and behind it those of the next seven:
// within each run of 128, groups of eight are transposed, so that a lane finds its part of the four
// steps in 32 neighbouring bytes.
constexpr int64_t QuantizedOffset(int64_t k) {
  const int64_t group = k / 8 % 16;
  return k / kKSlice * kKSlice + (group % 4 * 4 + group / 4) * 8;
}

}  // namespace dsv4::sm12x
