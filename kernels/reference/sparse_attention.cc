// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/sparse_attention.h"
#include "kernels/op/cache_rows.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"

namespace dsv4::reference {
namespace {

// Rows whose weighted sum is taken at a time, so that they stay in the cache over all dims.
constexpr int64_t kValueBlock = 64;

// weights[l, n] + rests[l, n] = exp(rows[n] . q[l] * scale - maximum); denominator[l] with the
// sink. Lanes beyond `heads` get zeros.
void SoftmaxWeights(const AttentionPlan& plan, int64_t row_count, int64_t heads, const float* sink,
                    double scale, double* denominator) {
  for (int64_t n = 0; n < row_count; n += kTileRows) {
    double* dots = plan.scores + n * kTileLanes;
    std::fill(dots, dots + kTileRows * kTileLanes, 0.0);
    AddProducts(plan.rows + n * kKvRowElements, kKvRowElements, plan.queries, kTileLanes,
                kKvRowElements, dots, kTileLanes);
  }
  for (int64_t l = 0; l < kTileLanes; ++l) {
    float* weights = plan.weights + l * plan.padded_rows;
    float* rests = plan.rests + l * plan.padded_rows;
    if (l >= heads) {
      std::fill(weights, weights + row_count, 0.0f);
      std::fill(rests, rests + row_count, 0.0f);
      continue;
    }
    double largest = sink[l];
    for (int64_t n = 0; n < row_count; ++n) {
      largest = std::max(largest, plan.scores[n * kTileLanes + l] * scale);
    }
    double sum = std::exp(sink[l] - largest);
    for (int64_t n = 0; n < row_count; ++n) {
      const double weight = std::exp(plan.scores[n * kTileLanes + l] * scale - largest);
      weights[n] = static_cast<float>(weight);
      rests[n] = static_cast<float>(weight - weights[n]);
      sum += weight;
    }
    denominator[l] = sum;
  }
}

// The rows of token t, gathered in the contract's order; returns their number.
int64_t GatherRows(const SparseAttentionParams& params, int64_t t, float* out) {
  const StepRows& step = *params.step;
  const SequenceRows& sequence = step.sequences[step.sequence_of[t]];
  const int64_t position = step.positions[t];
  int64_t count = 0;
  const auto append = [&](const RowPool& pool, int32_t block, int64_t slot) {
    LoadRow(pool, block, slot, out + count++ * kKvRowElements);
  };
  const bool block = params.block_rows > 0;
  const int64_t first = block ? sequence.first_position : position + 1;
  const int64_t last = block ? sequence.first_position + sequence.rows - 1 : position;
  for (int64_t p = std::max(sequence.window_begin, first - kWindowTokens); p <= last; ++p) {
    append(params.window, sequence.window_blocks[p / kWindowBlockTokens], p % kWindowBlockTokens);
  }
  if (params.ratio == 0) return count;
  const int64_t rows_per_block = kCompressedKvBlockTokens / params.ratio;
  const auto append_compressed = [&](int64_t compressed_block) {
    append(params.compressed, sequence.compressed_kv_blocks[compressed_block / rows_per_block],
           compressed_block % rows_per_block);
  };
  if (params.ratio == kCsaRatio) {
    for (int64_t i = 0; i < params.topk; ++i) {
      const int32_t compressed_block = params.selected[t * params.topk + i];
      if (compressed_block >= 0) append_compressed(compressed_block);
    }
  } else {
    const int64_t visible = VisibleCompressedBlocks(position, params.ratio);
    for (int64_t compressed_block = 0; compressed_block < visible; ++compressed_block)
      append_compressed(compressed_block);
  }
  return count;
}

int64_t MaxRows(const SparseAttentionParams& params) {
  if (params.ratio == 0) return kWindowTokens + params.block_rows;
  const int64_t visible = VisibleCompressedBlocks(params.step->max_position, params.ratio);
  return kWindowTokens +
         (params.ratio == kCsaRatio ? std::min<int64_t>(params.topk, visible) : visible);
}

}  // namespace

AttentionPlan::AttentionPlan(std::byte* base, int64_t max_rows)
    : scratch(base),
      padded_rows(RoundUp(max_rows, kTileRows)),
      rows(scratch.Take<float>(padded_rows * kKvRowElements)),
      queries(scratch.Take<float>(kKvRowElements * kTileLanes)),
      scores(scratch.Take<double>(padded_rows * kTileLanes)),
      weights(scratch.Take<float>(kTileLanes * padded_rows)),
      rests(scratch.Take<float>(kTileLanes * padded_rows)),
      sums(scratch.Take<double>(kTileLanes * kKvRowElements)) {}

void AttendRows(const AttentionPlan& plan, int64_t row_count, const float* q, int64_t heads,
                const float* sink, float softmax_scale, float* o) {
  const float* queries[kTileLanes];
  for (int64_t l = 0; l < heads; ++l) queries[l] = q + l * kKvRowElements;
  TransposeTile(queries, heads, kKvRowElements, plan.queries);
  double denominator[kTileLanes];
  SoftmaxWeights(plan, row_count, heads, sink, softmax_scale, denominator);

  std::fill(plan.sums, plan.sums + kTileLanes * kKvRowElements, 0.0);
  for (int64_t n = 0; n < row_count; n += kValueBlock) {
    const int64_t count = std::min(kValueBlock, row_count - n);
    for (int64_t d = 0; d < kKvRowElements; d += kTileLanes) {
      for (int64_t l = 0; l < heads; l += kTileRows) {
        for (const float* weights : {plan.weights, plan.rests}) {
          AddProducts(weights + l * plan.padded_rows + n, plan.padded_rows,
                      plan.rows + n * kKvRowElements + d, kKvRowElements, count,
                      plan.sums + l * kKvRowElements + d, kKvRowElements);
        }
      }
    }
  }
  for (int64_t l = 0; l < heads; ++l) {
    for (int64_t d = 0; d < kKvRowElements; ++d) {
      const int64_t i = l * kKvRowElements + d;
      o[i] = static_cast<float>(plan.sums[i] / denominator[l]);
    }
  }
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& params) {
  const StepRows& step = *params.step;
  const float* rope = params.ratio == 0 ? step.rope.window : step.rope.compressed;
  const int64_t max_rows = MaxRows(params);
  const int64_t worker_bytes = AttentionPlan(nullptr, max_rows).scratch.bytes();
  const int64_t head_tiles = CeilDiv<int64_t>(params.heads, kTileLanes);
  StreamOf(context).ParallelFor(step.rows * head_tiles, [&](int64_t unit, int worker) {
    const AttentionPlan plan(context.workspace + worker * worker_bytes, max_rows);
    const int64_t t = unit / head_tiles, head = unit % head_tiles * kTileLanes;
    const int64_t heads = std::min<int64_t>(kTileLanes, params.heads - head);
    const int64_t offset = (t * params.heads + head) * kKvRowElements;
    float* o = static_cast<float*>(params.o) + offset;
    AttendRows(plan, GatherRows(params, t, plan.rows), static_cast<const float*>(params.q) + offset,
               heads, params.sink + head, params.softmax_scale, o);
    Round(context, Point::kRoundAttention, o, heads * kKvRowElements);
    for (int64_t l = 0; l < heads; ++l) {
      float* tail = o + (l + 1) * kKvRowElements - kKvRopeElements;
      ApplyInverseRope(tail, rope + t * kKvRopeElements);
      Round(context, Point::kRoundInverseRope, tail, kKvRopeElements);
    }
  });
}

int64_t SparseAttentionWorkspace(const SparseAttentionParams& params, int threads) {
  return threads * AttentionPlan(nullptr, MaxRows(params)).scratch.bytes();
}

}  // namespace dsv4::reference
