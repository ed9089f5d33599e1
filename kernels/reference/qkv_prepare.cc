// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/cache_rows.h"
#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"

namespace dsv4::reference {
namespace {

constexpr int64_t kPlainElements = kKvRowElements - kKvRopeElements;

void RotateTail(const LaunchContext& context, const float* table, float* row) {
  ApplyRope(row + kPlainElements, table);
  Round(context, Point::kRoundRope, row + kPlainElements, kKvRopeElements);
}

void PrepareIndexHead(const LaunchContext& context, const float* table, float* q) {
  constexpr int64_t kPlain = kIndexKeyElements - kKvRopeElements;
  ApplyRope(q + kPlain, table);
  Round(context, Point::kRoundRope, q + kPlain, kKvRopeElements);
  Hadamard128(q);
  Round(context, Point::kRoundHadamard, q, kIndexKeyElements);
  Fp4ActQuant(context, Point::kQuantIndexQuery, q, kIndexKeyElements);
}

}  // namespace

void LaunchQkvPrepare(const LaunchContext& context, const QkvPrepareParams& params) {
  const StepRows& step = *params.step;
  const float* rope = params.compressed_rope ? step.rope.compressed : step.rope.window;
  StreamOf(context).ParallelFor(step.rows, [&](int64_t t, int) {
    const float* table = rope + t * kKvRopeElements;
    for (int64_t h = 0; h < params.heads; ++h) {
      float* q = static_cast<float*>(params.q) + (t * params.heads + h) * kKvRowElements;
      const double inverse = InverseRms(q, kKvRowElements, params.eps);
      for (int64_t d = 0; d < kKvRowElements; ++d) {
        q[d] = static_cast<float>(q[d] * inverse);
      }
      Round(context, Point::kRoundQNorm, q, kKvRowElements);
      RotateTail(context, table, q);
      if (params.window.format == RowFormat::kFp8PerTensor) QuantiseQuery(q);
    }
    for (int64_t h = 0; h < params.index_heads; ++h) {
      PrepareIndexHead(
          context, step.rope.compressed + t * kKvRopeElements,
          static_cast<float*>(params.index_q) + (t * params.index_heads + h) * kIndexKeyElements);
    }
    const SequenceRows& sequence = step.sequences[step.sequence_of[t]];
    const int64_t position = step.positions[t];
    float row[kKvRowElements];
    RmsNormRow(static_cast<const float*>(params.kv) + t * kKvRowElements, kKvRowElements,
               params.kv_norm, params.eps, row);
    Round(context, Point::kRoundRmsNorm, row, kKvRowElements);
    RotateTail(context, table, row);
    StoreRow(params.window, sequence.window_blocks[position / kWindowBlockTokens],
             position % kWindowBlockTokens, row, InForce(context, Point::kQuantWindowRow));
  });
}

}  // namespace dsv4::reference
