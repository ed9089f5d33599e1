// SPDX-License-Identifier: Apache-2.0
// hc_post: mixes the residual streams and adds the sub-layer's output; mtp_combine: the streams
// that enter the MTP block. Both read every element once and write it once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hc_post.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/hyper_connection.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

void HcPostRows(const HcPostParams& p, int64_t begin, int64_t end) {
  const DD d;
  const int64_t dim = p.hidden;
  for (int64_t r = begin; r < end; ++r) {
    const uint16_t* y = static_cast<const uint16_t*>(p.y) + r * dim;
    const uint16_t* in = static_cast<const uint16_t*>(p.streams) + r * 4 * dim;
    uint16_t* out = static_cast<uint16_t*>(p.out) + r * 4 * dim;
    VD post[4], comb[4][4];
    for (int j = 0; j < 4; ++j) {
      post[j] = hn::Set(d, p.post[r * 4 + j]);
      for (int h = 0; h < 4; ++h) comb[h][j] = hn::Set(d, p.comb[r * 16 + h * 4 + j]);
    }
    for (int64_t i = 0; i < dim; i += kDoublePairLanes) {
      const DoublePair add = LoadDoublePair(y + i);
      const DoublePair x[4] = {LoadDoublePair(in + i), LoadDoublePair(in + dim + i),
                               LoadDoublePair(in + 2 * dim + i), LoadDoublePair(in + 3 * dim + i)};
      for (int j = 0; j < 4; ++j) {
        DoublePair sum = {hn::Mul(post[j], add.even), hn::Mul(post[j], add.odd)};
        for (int h = 0; h < 4; ++h) {
          sum.even = hn::MulAdd(comb[h][j], x[h].even, sum.even);
          sum.odd = hn::MulAdd(comb[h][j], x[h].odd, sum.odd);
        }
        StoreDoublePair(sum, out + j * dim + i);
      }
    }
  }
}

void MtpCombineRows(const MtpCombineParams& p, int64_t begin, int64_t end) {
  const int64_t dim = p.hidden;
  for (int64_t r = begin; r < end; ++r) {
    const uint16_t* e = static_cast<const uint16_t*>(p.e) + r * dim;
    const uint16_t* h = static_cast<const uint16_t*>(p.h) + r * 4 * dim;
    uint16_t* out = static_cast<uint16_t*>(p.streams) + r * 4 * dim;
    for (int64_t i = 0; i < dim; i += kPairLanes) {
      const VPair add = LoadPair(e + i);
      for (int64_t at = i; at < 4 * dim; at += dim) {
        const VPair x = LoadPair(h + at);
        StorePair({hn::Add(add.even, x.even), hn::Add(add.odd, x.odd)}, out + at);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(HcPostRows);
HWY_EXPORT(MtpCombineRows);

template <class Params>
absl::Status SupportsHidden(const Params& p) {
  return p.hidden % 128 == 0 ? absl::OkStatus()
                             : Unsupported("cpu.", OpName(Params::kOp), ": hidden ", p.hidden,
                                           " is not a multiple of 128");
}

void LaunchHcPost(const LaunchContext& context, const HcPostParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(HcPostRows);
  ForRowBlocks(context, params.rows, BlockRows(params.hidden * 18),
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

void LaunchMtpCombine(const LaunchContext& context, const MtpCombineParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(MtpCombineRows);
  ForRowBlocks(context, params.rows, BlockRows(params.hidden * 18),
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuHcPost =
    MakeEntry<HcPostParams, &LaunchHcPost, &SupportsHidden<HcPostParams>>(
        "cpu.hc_post", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);
constinit const KernelEntry kCpuMtpCombine =
    MakeEntry<MtpCombineParams, &LaunchMtpCombine, &SupportsHidden<MtpCombineParams>>(
        "cpu.mtp_combine", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
