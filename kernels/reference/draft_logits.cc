// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/draft_logits.h"

#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"

namespace dsv4::reference {

void LaunchDraftLogits(const LaunchContext& context, const DraftLogitsParams& p) {
  const auto dot = [&](const uint16_t* a, int64_t count, auto&& b) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += double{Bf16ToFloat(a[i])} * double{b(i)};
    return sum;
  };
  for (int32_t i = 0; i < p.rows; ++i) {
    const int32_t token = p.TokenOf(i);
    if (token < 0) continue;
    const uint16_t* const embedded = p.embed + token * p.rank;
    const auto element = [&](int64_t k) { return Bf16ToFloat(embedded[k]); };
    const int64_t row = p.row_of[i];
    float* const logits = p.logits + row * p.vocab;
    StreamOf(context).ParallelFor(p.vocab, [&](int64_t n, int) {
      logits[n] += static_cast<float>(dot(p.weight + n * p.rank, p.rank, element));
    });
    const float* const state = static_cast<const float*>(p.states) + row * p.hidden;
    p.confidences[row] =
        static_cast<float>(dot(p.confidence, p.hidden, [&](int64_t k) { return state[k]; }) +
                           dot(p.confidence + p.hidden, p.rank, element));
  }
}

}  // namespace dsv4::reference
