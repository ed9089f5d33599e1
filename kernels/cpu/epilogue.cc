// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/epilogue.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/epilogue.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::CappedTag<float, 16>;
constexpr int64_t kWidth = hn::MaxLanes(Tag());

// Transcendental functions are computed in double and their results rounded once: the last place of
// an f32 that bf16 and a quantiser follow can become a step of 6 %.
using HalfTag = hn::Half<Tag>;
using WideTag = hn::Rebind<double, HalfTag>;
constexpr int64_t kWideWidth = hn::MaxLanes(WideTag());

}  // namespace

void RoundRowsTarget(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
                     int64_t y_stride) {
  const Tag df;
  for (int64_t i = 0; i < m; ++i) {
    const float* from = x + i * x_stride;
    uint16_t* to = y + i * y_stride;
    int64_t j = 0;
    for (; j + kWidth <= n; j += kWidth) StoreBf16(hn::LoadU(df, from + j), df, to + j);
    for (; j < n; ++j) {
      const hn::CappedTag<float, 1> one;
      StoreBf16(hn::LoadU(one, from + j), one, to + j);
    }
  }
}

void RoundQuantiseRowsTarget(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
                             int64_t y_stride) {
  const Tag df;
  alignas(64) float rounded[128];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t run = 0; run < n; run += 128) {
      const float* from = x + i * x_stride + run;
      for (int64_t j = 0; j < 128; j += kWidth) {
        hn::Store(RoundBf16(df, hn::LoadU(df, from + j)), df, rounded + j);
      }
      ActQuantRun(rounded, 128, y + i * y_stride + run);
    }
  }
}

void SwigluRowsTarget(const float* gate, const float* up, int64_t stride, int64_t m, int64_t n,
                      float limit, const float* weights, uint16_t* y, int64_t y_stride) {
  const Tag df;
  const HalfTag dh;
  const WideTag dd;
  const auto high = hn::Set(df, limit > 0 ? limit : std::numeric_limits<float>::infinity());
  const auto low = hn::Neg(high);
  for (int64_t i = 0; i < m; ++i) {
    const auto weight = hn::Set(dd, weights == nullptr ? 1.0 : double{weights[i]});
    for (int64_t j = 0; j < n; j += kWidth) {
      const auto g = hn::Min(RoundBf16(df, hn::LoadU(df, gate + i * stride + j)), high);
      const auto u = hn::Clamp(RoundBf16(df, hn::LoadU(df, up + i * stride + j)), low, high);
      alignas(64) float gates[kWidth], ups[kWidth], products[kWidth];
      hn::Store(g, df, gates);
      hn::Store(u, df, ups);
      for (int64_t l = 0; l < kWidth; l += kWideWidth) {
        const auto wide_g = hn::PromoteTo(dd, hn::Load(dh, gates + l));
        const auto wide_u = hn::PromoteTo(dd, hn::Load(dh, ups + l));
        const auto p = hn::Mul(hn::Mul(Silu(dd, wide_g), wide_u), weight);
        hn::Store(hn::DemoteTo(dh, p), dh, products + l);
      }
      StoreBf16(hn::Load(df, products), df, y + i * y_stride + j);
    }
  }
}

void QuantiseRowsTarget(uint16_t* y, int64_t y_stride, int64_t m, int64_t n) {
  const Tag df;
  alignas(64) float wide[128];
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t run = 0; run < n; run += 128) {
      uint16_t* const at = y + i * y_stride + run;
      for (int64_t j = 0; j < 128; j += kWidth) hn::Store(LoadBf16(df, at + j), df, wide + j);
      ActQuantRun(wide, 128, at);
    }
  }
}

void SumRowsTarget(const uint16_t* const* rows, int64_t count, int64_t n, uint16_t* y) {
  const Tag df;
  for (int64_t j = 0; j < n; j += kWidth) {
    auto sum = LoadBf16(df, rows[0] + j);
    for (int64_t r = 1; r < count; ++r) sum = hn::Add(sum, LoadBf16(df, rows[r] + j));
    StoreBf16(sum, df, y + j);
  }
}

void SqrtSoftplusTarget(float* x, int64_t n) {
  const HalfTag dh;
  const WideTag dd;
  // Above 40 softplus(x) is x, even in double, and exp could overflow.
  const auto linear_from = hn::Set(dd, 40.0);
  alignas(64) float tail[kWideWidth] = {};
  for (int64_t i = 0; i < n; i += kWideWidth) {
    const int64_t count = n - i < kWideWidth ? n - i : kWideWidth;
    float* at = x + i;
    if (count < kWideWidth) {
      for (int64_t j = 0; j < count; ++j) tail[j] = at[j];
      at = tail;
    }
    const auto v = hn::PromoteTo(dd, hn::LoadU(dh, at));
    const auto soft = hn::Log1p(dd, hn::Exp(dd, hn::Min(v, linear_from)));
    const auto root = hn::Sqrt(hn::IfThenElse(hn::Gt(v, linear_from), v, soft));
    hn::StoreU(hn::DemoteTo(dh, root), dh, at);
    if (count < kWideWidth) {
      for (int64_t j = 0; j < count; ++j) x[i + j] = tail[j];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {

HWY_EXPORT(RoundRowsTarget);
HWY_EXPORT(RoundQuantiseRowsTarget);
HWY_EXPORT(SwigluRowsTarget);
HWY_EXPORT(QuantiseRowsTarget);
HWY_EXPORT(SumRowsTarget);
HWY_EXPORT(SqrtSoftplusTarget);

void RoundRows(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
               int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(RoundRowsTarget)(x, x_stride, m, n, y, y_stride);
}

void RoundQuantiseRows(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
                       int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(RoundQuantiseRowsTarget)(x, x_stride, m, n, y, y_stride);
}

void SwigluRows(const float* gate, const float* up, int64_t stride, int64_t m, int64_t n,
                float limit, const float* weights, uint16_t* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(SwigluRowsTarget)
  (gate, up, stride, m, n, limit, weights, y, y_stride);
}

void QuantiseRows(uint16_t* y, int64_t y_stride, int64_t m, int64_t n) {
  HWY_DYNAMIC_DISPATCH(QuantiseRowsTarget)(y, y_stride, m, n);
}

void SumRows(const uint16_t* const* rows, int64_t count, int64_t n, uint16_t* y) {
  HWY_DYNAMIC_DISPATCH(SumRowsTarget)(rows, count, n, y);
}

void SqrtSoftplus(float* x, int64_t n) { HWY_DYNAMIC_DISPATCH(SqrtSoftplusTarget)(x, n); }

}  // namespace dsv4
#endif  // HWY_ONCE
