// SPDX-License-Identifier: Apache-2.0
// One transformer block: hyper-connections around attention and around the FFN (model.md 4.1), and
// the head (model.md 4.6), in the paper's order, one line per operator.
#pragma once

#include "lib/kv/kv_cache.h"
#include "lib/model/forward_context.h"
#include "lib/packing/weight_views.h"

namespace dsv4 {

// act.streams -> act.streams. `layer`: number of the block for taps; the drafter's begin at L.
absl::Status RunBlock(const ForwardContext& context, int64_t layer, const BlockWeights& weights,
                      const LayerCache& cache);

// act.normed, act.quantized -> act.y (attention.cc).
absl::Status RunAttention(const ForwardContext& context, int64_t layer, const BlockWeights& weights,
                          const LayerCache& cache);

// act.normed, act.quantized -> act.y (moe.cc).
absl::Status RunMoe(const ForwardContext& context, int64_t layer, const MoeWeights& weights);

// act.streams of `rows` rows, those of `row_of` (null: the first) -> act.logits.
// - `part`: receives the rank's logits if ranks divide the vocabulary.
// - `mixed`: [rows, D] act, receives the input of the norm; may be null.
absl::Status RunHead(const ForwardContext& context, const HyperConnectionWeights& hc_head,
                     const uint16_t* norm, const Bf16Weight& head, int32_t rows,
                     const int32_t* row_of, float* part, void* mixed = nullptr);

}  // namespace dsv4
