// SPDX-License-Identifier: Apache-2.0
// The dot products for processors with AMX (Xeons since Sapphire Rapids). An AMX tile product of
// 16 x 16 outputs by 32 elements of K has sixteen times the multiply rate of vdpbf16ps. This file
// is compiled with these instruction sets: its code may run only after dot.cc has checked the
// processor and the operating system.
//
// - Weight rows are the first operand of the tile product, as they lie in memory.
// - Activations are the second. Its rows hold pairs of elements along K, so activations are packed
//   first. A single row needs no packing.
// - Blocks have 2 x 2 tiles: four loads for four products.
// - For rows below kLeastK elements the setup of tiles takes too long. They go to kDotAvx512Bf16,
//   for any number of activation rows.
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/cpu/dot_amx.h"
#include "kernels/cpu/unpack_avx512-inl.h"

namespace dsv4 {
namespace {

constexpr int64_t kTile = 16;  // rows of a tile, and its 32-bit columns
constexpr int64_t kStep = 32;  // elements of K in a tile product
constexpr int64_t kLeastK = 512;
constexpr int64_t kTileWords = kTile * kTile;

// GCC does not know that its tile intrinsics read and write memory.
inline void OrderMemory() { asm volatile("" ::: "memory"); }

// Tiles 0 .. 3 are sums, [weight tile][activation tile]; 4 and 5 are weights, 6 and 7 activations.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  // For weight tiles of `first` and `second` rows, and activation tiles of `columns` columns.
  TileConfig(int64_t first, int64_t second, int64_t columns) {
    for (int i = 0; i < 8; ++i) {
      const bool weights = i == 4 || i == 5, activations = i >= 6;
      row_bytes[i] = static_cast<uint16_t>(weights ? kTile * 4 : columns * 4);
      rows[i] = static_cast<uint8_t>(activations                  ? kTile
                                     : i == 2 || i == 3 || i == 5 ? second
                                                                  : first);
    }
  }
};

// Configures the tiles during its lifetime.
class Tiles {
 public:
  Tiles(int64_t first, int64_t second, int64_t columns) {
    const TileConfig config(first, second, columns);
    OrderMemory();
    _tile_loadconfig(&config);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

inline __m512i Low32(__m512i a, __m512i b) { return _mm512_unpacklo_epi32(a, b); }
inline __m512i High32(__m512i a, __m512i b) { return _mm512_unpackhi_epi32(a, b); }
inline __m512i Low64(__m512i a, __m512i b) { return _mm512_unpacklo_epi64(a, b); }
inline __m512i High64(__m512i a, __m512i b) { return _mm512_unpackhi_epi64(a, b); }

// Transposes 16 x 16 words.
inline void Transpose(__m512i (&v)[kTile]) {
  // Blocks of 4 x 4 words within 128-bit lanes: t[4 q + c] has column c + 4 l of rows 4 q .. 4 q +
  // 3 in lane l.
  __m512i t[kTile];
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512i* r = v + 4 * q;
    const __m512i a = Low32(r[0], r[1]), b = High32(r[0], r[1]);
    const __m512i c = Low32(r[2], r[3]), d = High32(r[2], r[3]);
    t[4 * q] = Low64(a, c);
    t[4 * q + 1] = High64(a, c);
    t[4 * q + 2] = Low64(b, d);
    t[4 * q + 3] = High64(b, d);
  }
  // Lane l of t[c], t[4 + c], t[8 + c], t[12 + c] makes column c + 4 l.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even0 = _mm512_shuffle_i32x4(t[c], t[4 + c], 0x88);
    const __m512i odd0 = _mm512_shuffle_i32x4(t[c], t[4 + c], 0xdd);
    const __m512i even1 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0x88);
    const __m512i odd1 = _mm512_shuffle_i32x4(t[8 + c], t[12 + c], 0xdd);
    v[c] = _mm512_shuffle_i32x4(even0, even1, 0x88);
    v[4 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
    v[8 + c] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
    v[12 + c] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
  }
}

// Packs elements [p, p + count) of rows m .. m + rows - 1, rows <= 16, and pads with zeros to 16
// rows.
inline void PackTile(const ActRows& a, int64_t m, int64_t rows, int64_t p, int64_t count,
                     uint32_t* to) {
  const uint16_t* from[kTile];
  for (int64_t i = 0; i < kTile; ++i) from[i] = a.Row(m + std::min(i, rows - 1)) + p;
  for (int64_t s = 0; s < count; s += kStep, to += kTileWords) {
    __m512i v[kTile];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) {
      v[i] = i < rows ? _mm512_loadu_si512(from[i] + s) : _mm512_setzero_si512();
    }
    Transpose(v);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) _mm512_storeu_si512(to + i * kTile, v[i]);
  }
}

void Pack(const ActRows& a, int64_t m, int64_t k, uint32_t* packed) {
  for (int64_t i = 0; i < m; i += kTile) {
    PackTile(a, i, std::min(kTile, m - i), 0, k, packed + i * k / 2);
  }
}

// out[i * ld + j] = sums[j][i] for i < m, j < n.
inline void StoreTransposed(const uint32_t* sums, int64_t m, int64_t n, float* out, int64_t ld) {
  __m512i v[kTile];
#pragma GCC unroll 16
  for (int64_t j = 0; j < kTile; ++j) v[j] = _mm512_load_si512(sums + j * kTile);
  Transpose(v);
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTile; ++i) {
    if (i < m) _mm512_mask_storeu_epi32(out + i * ld, mask, v[i]);
  }
}

// Steps by which a block prefetches its operands from L2.
constexpr int64_t kAhead = 4;

// Adds the products of 16 or 32 weight rows with 16 packed rows `x`, and with kTwoTiles 16 more,
// `y`, to tiles 0 .. 3.
template <bool kTwoWeights, bool kTwoTiles>
inline void Multiply(const uint16_t* w, int64_t w_stride, const uint32_t* x, const uint32_t* y,
                     int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) {
    const uint16_t* const from = w + s * kStep;
#pragma GCC unroll 16
    for (int64_t r = 0; r < kTile; ++r) {
      Prefetch(from + r * w_stride + kAhead * kStep);
      if (kTwoWeights) Prefetch(from + (r + kTile) * w_stride + kAhead * kStep);
      Prefetch(x + (s + kAhead) * kTileWords + r * kTile);
      if (kTwoTiles) Prefetch(y + (s + kAhead) * kTileWords + r * kTile);
    }
    _tile_loadd(4, from, w_stride * 2);
    _tile_loadd(6, x + s * kTileWords, kTile * 4);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoTiles) {
      _tile_loadd(7, y + s * kTileWords, kTile * 4);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoWeights) {
      _tile_loadd(5, from + kTile * w_stride, w_stride * 2);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoTiles) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

// Up to 32 weight rows by up to 32 packed rows.
template <bool kTwoWeights, bool kTwoTiles>
inline void Block(const uint16_t* w, int64_t w_stride, int64_t n, const uint32_t* x, int64_t m,
                  int64_t k, float* out, int64_t ld) {
  alignas(64) uint32_t sums[4][kTileWords];
  _tile_zero(0);
  if (kTwoTiles) _tile_zero(1);
  if (kTwoWeights) _tile_zero(2);
  if (kTwoWeights && kTwoTiles) _tile_zero(3);
  Multiply<kTwoWeights, kTwoTiles>(w, w_stride, x, x + kTile * k / 2, k / kStep);
  _tile_stored(0, sums[0], kTile * 4);
  if (kTwoTiles) _tile_stored(1, sums[1], kTile * 4);
  if (kTwoWeights) _tile_stored(2, sums[2], kTile * 4);
  if (kTwoWeights && kTwoTiles) _tile_stored(3, sums[3], kTile * 4);
  OrderMemory();
  for (int tile = 0; tile < 4; ++tile) {
    const int64_t j = tile / 2 * kTile, i = tile % 2 * kTile;
    if (j >= n || i >= m) continue;
    StoreTransposed(sums[tile], std::min(m - i, kTile), std::min(n - j, kTile), out + i * ld + j,
                    ld);
  }
}

void DotPacked(const uint32_t* x, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n,
               int64_t k, float* out, int64_t ld) {
  const auto rows = [&](int64_t j, int64_t count) {
    for (int64_t i = 0; i < m; i += 2 * kTile) {
      const uint16_t* const from = w + j * w_stride;
      const uint32_t* const tile = x + i * k / 2;
      float* const to = out + i * ld + j;
      const bool two_tiles = m - i > kTile;
      const int64_t left = std::min(m - i, 2 * kTile);
      if (count > kTile) {
        two_tiles ? Block<true, true>(from, w_stride, count, tile, left, k, to, ld)
                  : Block<true, false>(from, w_stride, count, tile, left, k, to, ld);
      } else {
        two_tiles ? Block<false, true>(from, w_stride, count, tile, left, k, to, ld)
                  : Block<false, false>(from, w_stride, count, tile, left, k, to, ld);
      }
    }
  };
  const int64_t whole = n / (2 * kTile) * (2 * kTile), left = n - whole;
  if (whole > 0) {
    const Tiles tiles(kTile, kTile, kTile);
    for (int64_t j = 0; j < whole; j += 2 * kTile) rows(j, 2 * kTile);
  }
  if (left > 0) {
    const Tiles tiles(std::min(left, kTile), std::max(left - kTile, int64_t{1}), kTile);
    rows(whole, left);
  }
}

// Products with activation rows that are not packed, for weights in any format. A Source delivers
// 16 or 32 weight rows in bf16, a stretch of 64 elements of K at a time.

constexpr int64_t kStretch = 2 * kStep;
constexpr int64_t kRowsAtOnce = 2 * kTile;

// Unpacked stretches. There are two, so that one can be written while the other is multiplied.
struct alignas(64) Stretches {
  uint16_t elements[2][kRowsAtOnce][kStretch];
};

struct WeightRows {
  const uint16_t* data;
  int64_t stride;  // elements from one row to the next
};

class Bf16Source {
 public:
  Bf16Source(const uint16_t* w, int64_t stride, int64_t k) : w_(w), stride_(stride), k_(k) {}
  WeightRows Load(int64_t j, int64_t rows, int64_t p, Stretches&) const {
    const uint16_t* const from = w_ + j * stride_ + p;
    const int64_t ahead = AheadBytes(rows * k_ * 2) / 2;
    for (int64_t r = 0; r < rows; ++r) {
      Prefetch(from + r * stride_ + ahead);
      Prefetch(from + r * stride_ + ahead + kStep);
    }
    return {from, stride_};
  }

 private:
  const uint16_t* w_;
  int64_t stride_, k_;
};

class Fp8Source {
 public:
  Fp8Source(const uint8_t* w, const uint8_t* scale, int64_t k) : w_(w), scale_(scale), k_(k) {}
  WeightRows Load(int64_t j, int64_t rows, int64_t p, Stretches& stretches) const {
    auto& to = stretches.elements[p / kStretch % 2];
    const Fp8Unpacker unpacker(Fold(scale_, p / 128));
    const uint8_t* const from = w_ + j * k_ + p;
    const int64_t ahead = AheadBytes(rows * k_);
    for (int64_t r = 0; r < rows; ++r) {
      __m512i first, second;
      unpacker.Unpack(from + r * k_, first, second);
      Prefetch(from + r * k_ + ahead);
      _mm512_store_si512(to[r], first);
      _mm512_store_si512(to[r] + kStep, second);
    }
    return {to[0], kStretch};
  }

 private:
  const uint8_t *w_, *scale_;
  int64_t k_;
};

class Fp4Source {
 public:
  Fp4Source(const uint8_t* w, const uint8_t* scale, int64_t k) : w_(w), scale_(scale), k_(k) {}
  WeightRows Load(int64_t j, int64_t rows, int64_t p, Stretches& stretches) {
    // The folds of sixteen runs are prepared together, because reading one just after the vector
    // store that wrote it would stall.
    if (p % (kRuns * kStep) == 0) {
      for (int64_t r = 0; r < rows; ++r) {
        StoreFolds(scale_ + ((j + r) * k_ + p) / kStep, std::min(kRuns, (k_ - p) / kStep),
                   folds_[r]);
      }
    }
    auto& to = stretches.elements[p / kStretch % 2];
    const int64_t run = p / kStep % kRuns;
    const uint8_t* const from = w_ + (j * k_ + p) / 2;
    const int64_t ahead = AheadBytes(rows * k_ / 2);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* const row = from + r * k_ / 2;
      if (p % (2 * kStretch) == 0) Prefetch(row + ahead);
      _mm512_store_si512(to[r], UnpackRun(row, folds_[r][run]));
      _mm512_store_si512(to[r] + kStep, UnpackRun(row + kStep / 2, folds_[r][run + 1]));
    }
    return {to[0], kStretch};
  }

 private:
  const uint8_t *w_, *scale_;
  int64_t k_;
  alignas(64) uint32_t folds_[kRowsAtOnce][kRuns];
};

// Adds the products of weight rows j .. j + rows - 1 with elements [p, p + count) of up to 16
// activation rows to `sums`.
// - x: these elements, packed; with kOneRow, the elements of the row.
// - sums: [16 or 32][16]; with kOneRow, [16 or 32].
template <bool kTwo, bool kOneRow, class Source>
inline void AddProducts(Source& source, int64_t j, int64_t rows, const void* x, int64_t p,
                        int64_t count, uint32_t* sums) {
  constexpr int64_t kColumns = kOneRow ? 1 : kTile, kColumnBytes = kColumns * 4;
  constexpr int64_t kStepBytes = kStep / 2 * kColumnBytes;
  const auto* from = static_cast<const std::byte*>(x);
  Stretches stretches;
  const Tiles tiles(std::min(rows, kTile), kTwo ? rows - kTile : 1, kColumns);
  _tile_loadd(0, sums, kColumnBytes);
  if constexpr (kTwo) _tile_loadd(2, sums + kTile * kColumns, kColumnBytes);
  for (int64_t s = p; s < p + count; s += kStretch) {
    const WeightRows w = source.Load(j, rows, s, stretches);
    OrderMemory();
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half, from += kStepBytes) {
      _tile_loadd(6, from, kColumnBytes);
      _tile_loadd(4, w.data + half * kStep, w.stride * 2);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTwo) {
        _tile_loadd(5, w.data + kTile * w.stride + half * kStep, w.stride * 2);
        _tile_dpbf16ps(2, 5, 6);
      }
    }
  }
  _tile_stored(0, sums, kColumnBytes);
  if constexpr (kTwo) _tile_stored(2, sums + kTile * kColumns, kColumnBytes);
  OrderMemory();
}

template <bool kOneRow, class Source>
inline void AddRows(Source& source, int64_t j, int64_t rows, const void* x, int64_t p,
                    int64_t count, uint32_t* sums) {
  if (rows > kTile) {
    AddProducts<true, kOneRow>(source, j, rows, x, p, count, sums);
  } else {
    AddProducts<false, kOneRow>(source, j, rows, x, p, count, sums);
  }
}

template <class Source>
void DotUnpacked(const ActRows& a, int64_t m, Source source, int64_t n, int64_t k, float* out,
                 int64_t ld) {
  if (m == 1) {
    for (int64_t j = 0; j < n; j += kRowsAtOnce) {
      alignas(64) uint32_t sums[kRowsAtOnce] = {};
      const int64_t rows = std::min(kRowsAtOnce, n - j);
      AddRows<true>(source, j, rows, a.Row(0), 0, k, sums);
      std::memcpy(out + j, sums, static_cast<size_t>(rows) * sizeof(float));
    }
    return;
  }
  // Sixteen rows are packed one part of K at a time. The sums of 128 weight rows stay in memory
  // between the parts.
  constexpr int64_t kPackElements = 1024, kMostRows = 128;
  alignas(64) uint32_t packed[kPackElements / 2 * kTile];
  alignas(64) uint32_t sums[kMostRows * kTile];
  for (int64_t i = 0; i < m; i += kTile) {
    const int64_t count = std::min(kTile, m - i);
    for (int64_t begin = 0; begin < n; begin += kMostRows) {
      const int64_t end = std::min(n, begin + kMostRows);
      std::memset(sums, 0, sizeof sums);
      for (int64_t p = 0; p < k; p += kPackElements) {
        const int64_t elements = std::min(kPackElements, k - p);
        PackTile(a, i, count, p, elements, packed);
        for (int64_t j = begin; j < end; j += kRowsAtOnce) {
          AddRows<false>(source, j, std::min(kRowsAtOnce, end - j), packed, p, elements,
                         sums + (j - begin) * kTile);
        }
      }
      for (int64_t j = begin; j < end; j += kTile) {
        StoreTransposed(sums + (j - begin) * kTile, count, std::min(kTile, end - j),
                        out + i * ld + j, ld);
      }
    }
  }
}

// The functions of DotKernels.

void DotBf16(const ActRows& a, int64_t m, const uint16_t* w, int64_t w_stride, int64_t n, int64_t k,
             float* out, int64_t ld) {
  if (k < kLeastK) return kDotAvx512Bf16.bf16(a, m, w, w_stride, n, k, out, ld);
  if (a.packed != nullptr) return DotPacked(a.packed, m, w, w_stride, n, k, out, ld);
  DotUnpacked(a, m, Bf16Source(w, w_stride, k), n, k, out, ld);
}

void DirectFp8(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  if (k < kLeastK) return kDotAvx512Bf16.direct_fp8(a, m, w, scale, n, k, out, ld);
  DotUnpacked(a, m, Fp8Source(w, scale, k), n, k, out, ld);
}

void DirectFp4(const ActRows& a, int64_t m, const uint8_t* w, const uint8_t* scale, int64_t n,
               int64_t k, float* out, int64_t ld) {
  if (k < kLeastK) return kDotAvx512Bf16.direct_fp4(a, m, w, scale, n, k, out, ld);
  DotUnpacked(a, m, Fp4Source(w, scale, k), n, k, out, ld);
}

void UnpackFp8(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  kDotAvx512Bf16.unpack_fp8(w, scale, n, k, out);
}

void UnpackFp4(const uint8_t* w, const uint8_t* scale, int64_t n, int64_t k, uint16_t* out) {
  kDotAvx512Bf16.unpack_fp4(w, scale, n, k, out);
}

}  // namespace

const DotKernels kDotAmx = {.name = "amx",
                            .bf16 = &DotBf16,
                            .unpack_fp8 = &UnpackFp8,
                            .unpack_fp4 = &UnpackFp4,
                            .direct_fp8 = &DirectFp8,
                            .direct_fp4 = &DirectFp4,
                            .pack = &Pack,
                            .least_packed_k = kLeastK,
                            .row_gap = kStep};

}  // namespace dsv4
