// SPDX-License-Identifier: Apache-2.0
// The dot products under every matrix operator of the SIMD backend: bf16 activation rows times
// weight rows that are bf16 in memory, or are unpacked to bf16 from FP8 or FP4 in registers or into
// a scratch panel. Blocking over rows and threads, and scales beyond kMaxFold, are panel.h's.
//
// Order of a sum, the same in every function of one DotKernels, for few rows and many: f32 lanes
// run along K, one chain of fused multiply-adds per lane from K = 0 up, then a fixed tree over the
// lanes (docs/adr/0022-f32-sums-in-a-stated-order.md). kDotAmx, for K of 512 and more: from K = 0
// up, the tile product's sum of each 32 elements is added. An output's bits depend on its
// activation row and its weight row alone.
#pragma once

#include <cstdint>

namespace dsv4 {

// Activation rows: row m begins at base + (index ? index[m] : m) * stride.
struct ActRows {
  const uint16_t* base = nullptr;  // bf16
  int64_t stride = 0;              // elements
  const int32_t* index = nullptr;
  // The rows as DotKernels::pack leaves them, of `packed_k` elements; null: they are not
  // packed.
  const uint32_t* packed = nullptr;
  int64_t packed_k = 0;
  bool int8 = false;  // packed by BlockDotKernels::pack instead, in as many bytes

  const uint16_t* Row(int64_t m) const {
    return base + (index != nullptr ? int64_t{index[m]} : m) * stride;
  }
  // The rows from row m on, a multiple of kPackedTileRows where they are packed.
  ActRows From(int64_t m) const {
    ActRows rows = *this;
    if (index != nullptr) {
      rows.index += m;
    } else {
      rows.base += m * stride;
    }
    if (packed != nullptr) rows.packed += m * packed_k / 2;
    return rows;
  }
};

// Packed rows of one AMX tile.
inline constexpr int64_t kPackedTileRows = 16;

// A scale 2^f with |f| up to this is folded into the exponents of the unpacked bf16 values. That is
// exact, and products with activations stay in the range of normal f32.
inline constexpr int kMaxFold = 48;

// The most activation rows of the direct functions, and their largest K.
inline constexpr int kDirectRows = 6;
inline constexpr int64_t kDirectMaxK = 8192;

// K is a multiple of 128. Scales are within kMaxFold of 127. Of an FP8 weight, the rows of one call
// lie in one 128-row block, whose scales are `scale` [k / 128]. An FP4 weight's scales are
// [n, k / 32]. The unpacking functions take null for 2^0.
struct DotKernels {
  const char* name;
  // out[i * ld + j] = a row i . w row j, for i < m, j < n; w row j begins at w + j * w_stride.
  void (*bf16)(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n,
               int64_t k, float* out, int64_t ld);
  // out[j * k + i] = the value of weight (j, i) as bf16, for j < n, i < k.
  void (*unpack_fp8)(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out);
  void (*unpack_fp4)(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out);
  // Same result as unpack followed by bf16, without the scratch; m <= kDirectRows, k <=
  // kDirectMaxK. Null if unpacking in registers is not faster.
  void (*direct_fp8)(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
                     int64_t k, float* out, int64_t ld);
  void (*direct_fp4)(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
                     int64_t k, float* out, int64_t ld);
  // Rearranges m rows for `bf16`, which takes them without, too, but in more time. `packed`: k / 2
  // words for each row, in whole tiles of kPackedTileRows rows. Null where nothing is to be gained.
  void (*pack)(const ActRows& a, int64_t m, int64_t k, uint32_t* packed) = nullptr;
  int64_t least_packed_k = 0;  // the K from which `bf16` takes packed rows
  // Elements to leave between unpacked rows: `bf16` reads the same columns of 16 rows at a time,
  // which should not fall to the same set of a cache.
  int64_t row_gap = 0;
};

// The best for this processor, of the Highway targets in use.
const DotKernels& ActiveDotKernels();

// What ActiveDotKernels() may choose beyond Highway's targets: the one named and those before it.
// For tests of the other variants; at the start all may be chosen.
enum class DotExtension { kNone, kAvx512Bf16, kAmx };
void AllowDotExtensions(DotExtension last);
DotExtension AllowedDotExtensions();

#if defined(__x86_64__)
// For processors with AVX512-BF16 and VBMI.
extern const DotKernels kDotAvx512Bf16;
// For those that have AMX with bf16, too, on Linux, which is asked for it once a process: signal
// handlers' stacks must then have what getauxval(AT_MINSIGSTKSZ) says.
// Null if the system does not give this process AMX's registers, or the compiler does not know
// them. To be asked on processors that have AMX.
const DotKernels* AmxDotKernels();
#endif

}  // namespace dsv4
