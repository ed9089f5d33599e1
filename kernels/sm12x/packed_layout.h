// SPDX-License-Identifier: Apache-2.0
// The layout of packed weights and quantised activation rows, for device and host code: the order
// of the fragments of mma.sync m16n8k32 (m16n8k16 for bf16), with weights on the M side and
// activation rows on the N side. Lane 4 g + t of a warp holds weight rows g and g + 8 of a tile of
// 16 and, of each step (32 elements of K), elements 8 t .. 8 t + 7. The instruction numbers a
// step's elements differently, but any order is correct that both operands share.
//
// A K slice is the 128 elements of K that share an activation scale: four steps. A packed weight is
// [tile][K slice][lane], in vectors of 16 bytes. A lane's vectors of a K slice, with "g: a .. b"
// for elements 8 t + a .. 8 t + b of row g:
// - fp8: for step j, g: 0 .. 3, g + 8: 0 .. 3, g: 4 .. 7, g + 8: 4 .. 7.
// - fp4: for steps 2 j and 2 j + 1 each, a word of elements 0 .. 3 of both rows and a word of
//   elements 4 .. 7 (arch/e2m1_words.cuh). nvfp4 is the same.
// - bf16: for half steps (i = 0, then 4), g: i .. i + 1, g + 8: i .. i + 1, g: i + 2 .. i + 3,
//   g + 8: i + 2 .. i + 3.
//
// Scales:
// - fp8: as stored.
// - fp4: for each K slice of a tile, four bytes a row, one for each step; rows in the order
//   0, 8, 1, 9, .. 7, 15.
// - nvfp4: the same for the first 16 elements of each step, then for the other 16.
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

// The offset in a quantised row of the codes of elements k .. k + 7; k is a multiple of 8. Within
// each run of 128, the pieces of eight are transposed, so that a lane's parts of the four steps are
// 32 contiguous bytes.
constexpr int64_t QuantizedOffset(int64_t k) {
  const int64_t group = k / 8 % 16;
  return k / kKSlice * kKSlice + (group % 4 * 4 + group / 4) * 8;
}

}  // namespace dsv4::sm12x
