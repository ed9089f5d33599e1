// SPDX-License-Identifier: Apache-2.0
// What hc_pre and hc_head share: the product of a small f32 matrix with the flattened streams of up
// to 16 rows, and the weighted sum of a row's streams, both in double (see row_math-inl.h: the
// mixing numbers scale every element of a row). Included once per Highway target.

#if defined(DSV4_KERNELS_CPU_STREAM_MIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_KERNELS_CPU_STREAM_MIX_INL_H_
#undef DSV4_KERNELS_CPU_STREAM_MIX_INL_H_
#else
#define DSV4_KERNELS_CPU_STREAM_MIX_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

constexpr int64_t kMixRows = 16;       // rows of one unit
constexpr int64_t kMixColumns = 1024;  // columns between two horizontal sums: 6 fn rows stay in L1
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr int kTileRows = 2, kTileOutputs = 4;  // 8 sums in 16 registers
#else
constexpr int kTileRows = 4, kTileOutputs = 6;  // 24 sums in 32 registers
#endif

// sums[o * 16 + r] += fn[o, begin..end) . x[r][begin..end) for kRows rows and kOutputs fn rows.
// Each sum has one chain of its own, so that the tile's shape does not change its bits.
template <int kRows, int kOutputs>
HWY_INLINE void MixTile(const uint16_t* const* x, const float* HWY_RESTRICT fn, int64_t width,
                        int64_t begin, int64_t end, double* sums) {
  const DD d;
  VD acc[kRows * kOutputs];
  HWY_UNROLL(24)
  for (int i = 0; i < kRows * kOutputs; ++i) acc[i] = hn::Zero(d);
  for (int64_t k = begin; k < end; k += kDoubleLanes) {
    VD value[kRows];
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) value[r] = LoadDouble(x[r] + k);
    HWY_UNROLL(12)
    for (int o = 0; o < kOutputs; ++o) {
      const VD weight = LoadDouble(fn + o * width + k);
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        acc[o * kRows + r] = hn::MulAdd(weight, value[r], acc[o * kRows + r]);
      }
    }
  }
  for (int i = 0; i < kRows * kOutputs; ++i) {
    sums[i / kRows * kMixRows + i % kRows] += SumOfLanes(acc[i]);
  }
}

// m[o][r] = (fn[o] . x[r]) * rsqrt(mean(x[r]^2) + eps) for `rows` <= 16 rows of `width` elements;
// lanes of absent rows become 0.
template <int kOutputs>
HWY_INLINE void MixRows(const uint16_t* const* x, int64_t rows, const float* fn, int64_t width,
                        float eps, float (*m)[kMixRows]) {
  constexpr int kBlock = std::min(kTileOutputs, kOutputs);
  constexpr int kAloneBlock = std::min(12, kOutputs);
  static_assert(kOutputs % kBlock == 0 && kOutputs % kAloneBlock == 0);
  double sums[kOutputs][kMixRows] = {};
  for (int64_t begin = 0; begin < width; begin += kMixColumns) {
    const int64_t end = std::min(width, begin + kMixColumns);
    for (int64_t r = 0, taken = 0; r < rows; r += taken) {
      const auto tile = [&](auto tile_rows, auto outputs) HWY_ATTR {
        for (int o = 0; o < kOutputs; o += outputs()) {
          MixTile<tile_rows(), outputs()>(x + r, fn + o * width, width, begin, end, &sums[o][r]);
        }
        taken = tile_rows();
      };
      const int64_t left = rows - r;
      if (left == 1) {
        tile(std::integral_constant<int, 1>(), std::integral_constant<int, kAloneBlock>());
      } else if (kTileRows == 2 || left == 2) {
        tile(std::integral_constant<int, 2>(), std::integral_constant<int, kBlock>());
      } else if (left == 3 || left == 5 || left == 6) {  // of one size where they can be
        tile(std::integral_constant<int, 3>(), std::integral_constant<int, kBlock>());
      } else {
        tile(std::integral_constant<int, 4>(), std::integral_constant<int, kBlock>());
      }
    }
  }
  std::fill_n(m[0], kOutputs * kMixRows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const double scale = InverseRms(SumOfSquares(x[r], width), width, eps);
    for (int o = 0; o < kOutputs; ++o) m[o][r] = static_cast<float>(sums[o][r] * scale);
  }
}

// out = sum_h pre[h] x[h, :], rounded.
HWY_INLINE void SumStreams(const uint16_t* HWY_RESTRICT x, const float* pre, int64_t dim,
                           uint16_t* HWY_RESTRICT out) {
  const DD d;
  const VD weight[4] = {hn::Set(d, pre[0]), hn::Set(d, pre[1]), hn::Set(d, pre[2]),
                        hn::Set(d, pre[3])};
  for (int64_t i = 0; i < dim; i += kDoublePairLanes) {
    DoublePair v = LoadDoublePair(x + i);
    DoublePair sum = {hn::Mul(weight[0], v.even), hn::Mul(weight[0], v.odd)};
    for (int h = 1; h < 4; ++h) {
      v = LoadDoublePair(x + h * dim + i);
      sum = {hn::MulAdd(weight[h], v.even, sum.even), hn::MulAdd(weight[h], v.odd, sum.odd)};
    }
    StoreDoublePair(sum, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#endif  // include guard, toggled per target
