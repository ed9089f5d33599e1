// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts sub-layer (model.md 4.5).
#include "kernels/op/moe.h"

#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// The experts, of whose matrices each rank has some rows.
absl::Status RunShared(const ForwardContext& c, ExpertFfnParams ffn) {
  const int64_t element_bytes = DTypeBytes(c.act_dtype());
  const Slices &inter = c.shards->inter, &hidden = c.shards->hidden;
  const int64_t slots = int64_t{ffn.rows} * (ffn.experts_per_token + 1);
  ffn.part = ExpertPart::kProducts;
  ffn.products = c.act.products_part;
  ffn.inter = c.own(inter).size();
  if (!c.own(inter).empty()) DSV4_RETURN_IF_ERROR(c.Run(ffn));
  DSV4_RETURN_IF_ERROR(c.Gather(slots, inter, element_bytes, c.act.products_part, c.act.products));
  ffn.part = ExpertPart::kOutputs;
  ffn.products = c.act.products;
  ffn.inter = c.config->moe_intermediate_size;
  ffn.hidden = c.own(hidden).size();
  ffn.y = c.act.y_part;
  if (!c.own(hidden).empty()) DSV4_RETURN_IF_ERROR(c.Run(ffn));
  return c.Gather(ffn.rows, hidden, element_bytes, c.act.y_part, c.act.y);
}

}  // namespace

absl::Status RunMoe(const ForwardContext& c, int64_t layer, const MoeWeights& w) {
  const ModelConfig& config = *c.config;
  const int32_t k = static_cast<int32_t>(config.num_experts_per_tok);
  DSV4_RETURN_IF_ERROR(
      c.Run(MoeGateParams{.rows = c.step.rows,
                          .experts_per_token = k,
                          .gate = w.gate,
                          .x = c.act.normed,
                          .tokens = c.tokens,
                          .sequence_of = c.step.sequence_of,
                          .tid2eid = w.tid2eid,
                          .bias = w.bias,
                          .routed_scale = static_cast<float>(config.routed_scaling_factor),
                          .experts = c.act.experts,
                          .weights = c.act.expert_weights,
                          .counts = w.counts,
                          .calls = w.calls}));
  c.Show(layer, "route_expert", c.act.experts, DType::kI32, k);
  c.Show(layer, "route_weight", c.act.expert_weights, DType::kF32, k);
  const ExpertFfnParams ffn{.rows = c.step.rows,
                            .hidden = config.hidden_size,
                            .inter = config.moe_intermediate_size,
                            .expert_count = static_cast<int32_t>(config.n_routed_experts),
                            .experts_per_token = k,
                            .experts_table = w.table,
                            .shared_w1 = w.shared_w1,
                            .shared_w3 = w.shared_w3,
                            .shared_w2 = w.shared_w2,
                            .experts = c.act.experts,
                            .weights = c.act.expert_weights,
                            .limit = static_cast<float>(config.swiglu_limit),
                            .x = c.act.quantized,
                            .y = c.act.y};
  return c.alone() ? c.Run(ffn) : RunShared(c, ffn);
}

}  // namespace dsv4
