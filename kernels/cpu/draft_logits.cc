// SPDX-License-Identifier: Apache-2.0
// draft_logits: a unit is a run of the vocabulary, all rows of the call at a time, so that the
// table of weights is read once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/draft_logits.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/draft_logits.h"
#include "lib/base/checked_math.h"
#include "lib/tensor/quant_format.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

// In chains of f32, two vectors of them.
float DotBf16(const uint16_t* a, const uint16_t* b, int64_t count) {
  const DF d;
  const hn::Rebind<uint16_t, DF> bits;
  const auto load = [&](const uint16_t* from) {
    return hn::BitCast(
        d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), hn::LoadU(bits, from))));
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::MulAdd(load(a + i), load(b + i), even);
    odd = hn::MulAdd(load(a + i + lanes), load(b + i + lanes), odd);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < count; ++i) sum += Bf16ToFloat(a[i]) * Bf16ToFloat(b[i]);
  return sum;
}

void AddDraftLogits(const DraftLogitsParams& p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    for (int32_t i = 0; i < p.rows; ++i) {
      const int32_t token = p.TokenOf(i);
      if (token < 0) continue;
      p.logits[p.row_of[i] * p.vocab + n] +=
          DotBf16(p.weight + n * p.rank, p.embed + token * p.rank, p.rank);
    }
  }
}

float Confidence(const DraftLogitsParams& p, int32_t i) {
  const auto* const state = static_cast<const uint16_t*>(p.states) + p.row_of[i] * p.hidden;
  return DotBf16(p.confidence, state, p.hidden) +
         DotBf16(p.confidence + p.hidden, p.embed + p.TokenOf(i) * p.rank, p.rank);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(AddDraftLogits);
HWY_EXPORT(Confidence);

void LaunchDraftLogits(const LaunchContext& context, const DraftLogitsParams& p) {
  constexpr int64_t kTokens = 1024;  // of a unit
  const auto add = HWY_DYNAMIC_DISPATCH(AddDraftLogits);
  const auto confidence = HWY_DYNAMIC_DISPATCH(Confidence);
  static_cast<CpuStream*>(context.stream)
      ->ParallelFor(CeilDiv(p.vocab, kTokens), [&](int64_t unit, int) {
        add(p, unit * kTokens, std::min(p.vocab, (unit + 1) * kTokens));
      });
  for (int32_t i = 0; i < p.rows; ++i) {
    if (p.TokenOf(i) >= 0) p.confidences[p.row_of[i]] = confidence(p, i);
  }
}

}  // namespace

constinit const KernelEntry kCpuDraftLogits = MakeEntry<DraftLogitsParams, &LaunchDraftLogits>(
    "cpu.draft_logits", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
