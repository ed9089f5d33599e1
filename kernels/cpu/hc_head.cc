// SPDX-License-Identifier: Apache-2.0
// hc_head: the last weighted sum of the streams and the final norm, for the rows that need logits;
// or the streams' mean.
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hc_head.cc"
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

void MeanRows(const HcHeadParams& p, int64_t begin, int64_t end) {
  constexpr float kQuarters[4] = {0.25f, 0.25f, 0.25f, 0.25f};
  for (int64_t r = begin; r < end; ++r) {
    const int64_t row = p.row_of == nullptr ? r : p.row_of[r];
    uint16_t* const mean =
        static_cast<uint16_t*>(p.quantized) + r * p.quantized_width + p.quantized_column;
    SumStreams(static_cast<const uint16_t*>(p.streams) + row * 4 * p.hidden, kQuarters, p.hidden,
               mean);
    if (!p.quantise) continue;
    for (int64_t i = 0; i < p.hidden; i += 128) ActQuantRun<128>(mean + i, mean + i);
  }
}

// REQUIRES: end - begin <= 16.
void HcHeadRows(const HcHeadParams& p, int64_t begin, int64_t end) {
  if (p.fn == nullptr) return MeanRows(p, begin, end);
  const DD d;
  const int64_t dim = p.hidden, rows = end - begin;
  alignas(64) float m[4][kMixRows];
  const uint16_t* x[kMixRows];
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = p.row_of == nullptr ? begin + r : p.row_of[begin + r];
    x[r] = static_cast<const uint16_t*>(p.streams) + row * 4 * dim;
  }
  MixRows<4>(x, rows, p.fn, 4 * dim, p.norm_eps, m);
  for (int64_t lane = 0; lane < rows; lane += kDoubleLanes) {
    for (int o = 0; o < 4; ++o) {
      const VD v =
          hn::MulAdd(LoadDouble(m[o] + lane), hn::Set(d, p.scale[0]), hn::Set(d, p.base[o]));
      StoreDouble(hn::Add(Sigmoid(v), hn::Set(d, p.hc_eps)), m[o] + lane);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float pre[4] = {m[0][r], m[1][r], m[2][r], m[3][r]};
    uint16_t* normed = static_cast<uint16_t*>(p.normed) + (begin + r) * dim;
    SumStreams(x[r], pre, dim, normed);
    if (p.mixed != nullptr) {
      std::copy_n(normed, dim, static_cast<uint16_t*>(p.mixed) + (begin + r) * dim);
    }
    RmsNormRow(normed, p.norm, dim, p.norm_eps, normed, nullptr);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(HcHeadRows);

absl::Status SupportsHcHead(const HcHeadParams& p) {
  return p.hidden % 128 == 0
             ? absl::OkStatus()
             : Unsupported("cpu.hc_head: hidden ", p.hidden, " is not a multiple of 128");
}

void LaunchHcHead(const LaunchContext& context, const HcHeadParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(HcHeadRows);
  ForRowBlocks(context, params.rows, 16,
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuHcHead = MakeEntry<HcHeadParams, &LaunchHcHead, &SupportsHcHead>(
    "cpu.hc_head", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
