// SPDX-License-Identifier: Apache-2.0
// hc_pre: up to 16 rows are one unit of work. Their 24 mixing numbers come from one pass over fn
// and the streams; sigmoid and Sinkhorn then run in double with a row per lane, so that the 20
// dependent steps are paid once for a vector of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hc_pre.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/stream_mix-inl.h"
#include "kernels/op/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// Softmax and Sinkhorn of the 4 x 4 matrices in c[4 h + j], a row of the call per lane.
HWY_INLINE void Sinkhorn(VD c[16], int iterations, float hc_eps) {
  const DD d;
  const VD eps = hn::Set(d, hc_eps), one = hn::Set(d, 1.0);
  for (int h = 0; h < 16; h += 4) {
    const VD top = hn::Max(hn::Max(c[h], c[h + 1]), hn::Max(c[h + 2], c[h + 3]));
    for (int j = 0; j < 4; ++j) c[h + j] = ExpNonPositive(hn::Sub(c[h + j], top));
    const VD sum = hn::Add(hn::Add(c[h], c[h + 1]), hn::Add(c[h + 2], c[h + 3]));
    for (int j = 0; j < 4; ++j) c[h + j] = hn::Add(hn::Div(c[h + j], sum), eps);
  }
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) {
      for (int h = 0; h < 16; h += 4) {
        const VD sum = hn::Add(hn::Add(c[h], c[h + 1]), hn::Add(c[h + 2], c[h + 3]));
        const VD inverse = hn::Div(one, hn::Add(sum, eps));
        for (int j = 0; j < 4; ++j) c[h + j] = hn::Mul(c[h + j], inverse);
      }
    }
    for (int j = 0; j < 4; ++j) {
      const VD sum = hn::Add(hn::Add(c[j], c[4 + j]), hn::Add(c[8 + j], c[12 + j]));
      const VD inverse = hn::Div(one, hn::Add(sum, eps));
      for (int h = 0; h < 16; h += 4) c[h + j] = hn::Mul(c[h + j], inverse);
    }
  }
}

// The first `rows` columns of m [24][16] become pre, post and comb.
HWY_INLINE void MixingWeights(const HcPreParams& p, int64_t rows, float (*m)[kMixRows]) {
  const DD d;
  const VD eps = hn::Set(d, p.hc_eps);
  for (int64_t lane = 0; lane < rows; lane += kDoubleLanes) {
    const auto at = [&](int o, int kind) HWY_ATTR {
      return hn::MulAdd(LoadDouble(m[o] + lane), hn::Set(d, p.scale[kind]), hn::Set(d, p.base[o]));
    };
    for (int o = 0; o < 4; ++o) {
      StoreDouble(hn::Add(Sigmoid(at(o, 0)), eps), m[o] + lane);
      const VD post = Sigmoid(at(4 + o, 1));
      StoreDouble(hn::Add(post, post), m[4 + o] + lane);
    }
    VD c[16];
    for (int i = 0; i < 16; ++i) c[i] = at(8 + i, 2);
    Sinkhorn(c, p.sinkhorn_iters, p.hc_eps);
    for (int i = 0; i < 16; ++i) StoreDouble(c[i], m[8 + i] + lane);
  }
}

// REQUIRES: end - begin <= 16.
void HcPreRows(const HcPreParams& p, int64_t begin, int64_t end) {
  const int64_t dim = p.hidden, rows = end - begin;
  alignas(64) float m[24][kMixRows];
  const uint16_t* x[kMixRows];
  for (int64_t r = 0; r < rows; ++r) {
    x[r] = static_cast<const uint16_t*>(p.streams) + (begin + r) * 4 * dim;
  }
  MixRows<24>(x, rows, p.fn, 4 * dim, p.norm_eps, m);
  MixingWeights(p, rows, m);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = begin + r;
    const float pre[4] = {m[0][r], m[1][r], m[2][r], m[3][r]};
    for (int j = 0; j < 4; ++j) p.post[row * 4 + j] = m[4 + j][r];
    for (int i = 0; i < 16; ++i) p.comb[row * 16 + i] = m[8 + i][r];
    uint16_t* normed = static_cast<uint16_t*>(p.normed) + row * dim;
    SumStreams(x[r], pre, dim, normed);
    RmsNormRow(normed, p.norm, dim, p.norm_eps, normed,
               static_cast<uint16_t*>(p.quantized) + row * dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(HcPreRows);

absl::Status SupportsHcPre(const HcPreParams& p) {
  return p.hidden % 128 == 0
             ? absl::OkStatus()
             : Unsupported("cpu.hc_pre: hidden ", p.hidden, " is not a multiple of 128");
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  if (params.update.y != nullptr) {
    const HcPostParams update = UpdateOf(params);
    kCpuHcPost.launch(context, &update);
    return LaunchHcPre(context, AfterUpdate(params));
  }
  const auto rows = HWY_DYNAMIC_DISPATCH(HcPreRows);
  const int64_t threads = static_cast<CpuStream*>(context.stream)->threads();
  const int64_t block = std::clamp<int64_t>((params.rows + threads - 1) / threads, 1, 16);
  ForRowBlocks(context, params.rows, block,
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuHcPre = MakeEntry<HcPreParams, &LaunchHcPre, &SupportsHcPre>(
    "cpu.hc_pre", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
