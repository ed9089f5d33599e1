// SPDX-License-Identifier: Apache-2.0
// index_score_topk.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/op/cache_rows.h"
#include "kernels/reference/launch.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"
#include "kernels/reference/scratch.h"

namespace dsv4::reference {
namespace {

// One worker's arrays.
struct ScorePlan {
  ScorePlan(std::byte* base, const IndexScoreTopkParams& params)
      : scratch(base),
        max_compressed_blocks(VisibleCompressedBlocks(params.step->max_position, kCsaRatio)),
        queries(scratch.Take<float>(CeilDiv<int64_t>(params.heads, kTileLanes) * kTileLanes *
                                    kIndexKeyElements)),
        keys(scratch.Take<float>(kTileRows * kIndexKeyElements)),
        scores(scratch.Take<float>(max_compressed_blocks)),
        order(scratch.Take<int32_t>(max_compressed_blocks)) {}
  Scratch scratch;
  int64_t max_compressed_blocks;
  float* queries;  // [head tiles, 128, 16]
  float* keys;     // [8, 128]
  float* scores;   // [compressed blocks]
  int32_t* order;  // [compressed blocks]
};

void TransposeQueries(const IndexScoreTopkParams& params, int64_t t, float* out) {
  const float* q = static_cast<const float*>(params.q) + t * params.heads * kIndexKeyElements;
  for (int64_t head = 0; head < params.heads; head += kTileLanes) {
    const float* rows[kTileLanes];
    const int64_t count = std::min<int64_t>(kTileLanes, params.heads - head);
    for (int64_t l = 0; l < count; ++l) rows[l] = q + (head + l) * kIndexKeyElements;
    TransposeTile(rows, count, kIndexKeyElements, out + head * kIndexKeyElements);
  }
}

// Scores of compressed blocks [0, visible) for row t.
void Score(const IndexScoreTopkParams& params, int64_t t, int64_t visible, const ScorePlan& plan) {
  const StepRows& step = *params.step;
  const int32_t* blocks = step.sequences[step.sequence_of[t]].compressed_kv_blocks;
  const float* weights = static_cast<const float*>(params.weights) + t * params.heads;
  constexpr int64_t kKeysPerBlock = kCompressedKvBlockTokens / kCsaRatio;
  TransposeQueries(params, t, plan.queries);
  for (int64_t compressed_block = 0; compressed_block < visible; compressed_block += kTileRows) {
    const int64_t count = std::min(kTileRows, visible - compressed_block);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t g = compressed_block + r;
      LoadRow(params.keys, blocks[g / kKeysPerBlock], g % kKeysPerBlock,
              plan.keys + r * kIndexKeyElements);
    }
    double sums[kTileRows] = {};
    for (int64_t head = 0; head < params.heads; head += kTileLanes) {
      double dots[kTileRows * kTileLanes] = {};
      AddProducts(plan.keys, kIndexKeyElements, plan.queries + head * kIndexKeyElements, kTileLanes,
                  kIndexKeyElements, dots, kTileLanes);
      const int64_t lanes = std::min<int64_t>(kTileLanes, params.heads - head);
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t l = 0; l < lanes; ++l) {
          const float weight = weights[head + l] * params.weight_scale;
          sums[r] += weight * std::max(0.0, dots[r * kTileLanes + l]);
        }
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      // NaN has no place in an order: it comes last.
      plan.scores[compressed_block + r] = std::isnan(sums[r])
                                              ? -std::numeric_limits<float>::infinity()
                                              : static_cast<float>(sums[r]);
    }
  }
}

}  // namespace

void LaunchIndexScoreTopk(const LaunchContext& context, const IndexScoreTopkParams& params) {
  const StepRows& step = *params.step;
  const int64_t worker_bytes = ScorePlan(nullptr, params).scratch.bytes();
  StreamOf(context).ParallelFor(step.rows, [&](int64_t t, int worker) {
    const ScorePlan plan(context.workspace + worker * worker_bytes, params);
    const int64_t visible = VisibleCompressedBlocks(step.positions[t], kCsaRatio);
    const int64_t chosen = std::min<int64_t>(visible, params.topk);
    int32_t* selected = params.selected + t * params.topk;
    if (visible <= params.topk) {
      std::iota(selected, selected + chosen, 0);
    } else {
      Score(params, t, visible, plan);
      std::iota(plan.order, plan.order + visible, 0);
      std::nth_element(
          plan.order, plan.order + chosen, plan.order + visible, [&](int32_t a, int32_t b) {
            return plan.scores[a] != plan.scores[b] ? plan.scores[a] > plan.scores[b] : a < b;
          });
      std::copy_n(plan.order, chosen, selected);
      std::sort(selected, selected + chosen);
    }
    std::fill(selected + chosen, selected + params.topk, -1);
  });
}

int64_t IndexScoreTopkWorkspace(const IndexScoreTopkParams& params, int threads) {
  return threads * ScorePlan(nullptr, params).scratch.bytes();
}

}  // namespace dsv4::reference
