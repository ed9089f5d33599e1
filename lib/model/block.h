// SPDX-License-Identifier: Apache-2.0
// One transformer block: hyper-connections around attention and around the FFN (model.md 4.1), in
// the paper's order, one line per operator.
#pragma once

#include "lib/kv/kv_cache.h"
#include "lib/model/forward_context.h"
#include "lib/model/weight_views.h"

namespace dsv4 {

// act.streams -> act.streams. `layer` numbers the block for taps; a drafter's begin with L.
absl::Status RunBlock(const ForwardContext& context, int64_t layer, const BlockWeights& weights,
                      const LayerCache& cache);

// act.normed, act.quantized -> act.y (attention.cc).
absl::Status RunAttention(const ForwardContext& context, int64_t layer, const BlockWeights& weights,
                          const LayerCache& cache);

// act.normed, act.quantized -> act.y (moe.cc).
absl::Status RunMoe(const ForwardContext& context, int64_t layer, const MoeWeights& weights);

// act.streams of `rows` rows, chosen by `row_of` (null: the first rows) -> act.logits (head.cc), by
// way of `part` where ranks share out the vocabulary. `mixed`, if not null: [rows, D] act, what is
// normed there.
absl::Status RunHead(const ForwardContext& context, const HyperConnectionWeights& hc_head,
                     const uint16_t* norm, const Bf16Weight& head, int32_t rows,
                     const int32_t* row_of, float* part, void* mixed = nullptr);

}  // namespace dsv4
