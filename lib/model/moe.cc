// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts sub-layer (model.md 4.5).
#include "kernels/op/moe.h"

#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

using Launch = ExpertStore::Launch;

// The first half of the experts, with the rank's rows of their matrices.
absl::Status RunProducts(const ForwardContext& c, ExpertFfnParams ffn, Launch launch) {
  const Slices& inter = c.shards->inter;
  const int64_t pairs = int64_t{ffn.rows} * (ffn.experts_per_token + 1);
  ffn.part = ExpertPart::kProducts;
  ffn.products = c.act.products_part;
  ffn.inter = c.own(inter).size();
  if (!c.own(inter).empty()) DSV4_RETURN_IF_ERROR(launch(ffn));
  return c.Gather(pairs, inter, DTypeBytes(c.act_dtype()), c.act.products_part, c.act.products);
}

// The second half, or the sum of the outputs of waves.
absl::Status RunOutputs(const ForwardContext& c, ExpertFfnParams ffn, Launch launch) {
  ffn.part = ExpertPart::kOutputs;
  ffn.products = c.act.products;
  ffn.hidden = c.own(c.shards->hidden).size();
  ffn.y = c.act.y_part;
  return c.own(c.shards->hidden).empty() ? absl::OkStatus() : launch(ffn);
}

absl::Status RunWave(const ForwardContext& c, const ExpertStore::Wave& wave) {
  const auto launch = [&](const ExpertFfnParams& part) { return c.Run(part); };
  const auto run = [&](const ExpertFfnParams& part) { return wave.Run(part, launch); };
  ExpertFfnParams sum = wave.ffn;
  sum.wave = ExpertWave::kSum;
  sum.experts = c.act.experts;
  if (c.alone() && (wave.ffn.wave != ExpertWave::kAll || c.act.products == nullptr)) {
    DSV4_RETURN_IF_ERROR(run(wave.ffn));
    return wave.sums ? c.Run(sum) : absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(RunProducts(c, wave.ffn, run));
  DSV4_RETURN_IF_ERROR(RunOutputs(c, wave.ffn, run));
  if (wave.sums) DSV4_RETURN_IF_ERROR(RunOutputs(c, sum, launch));
  // Also before further waves: no two consecutive exchanges may be of the products.
  return c.Gather(c.step.rows, c.shards->hidden, DTypeBytes(c.act_dtype()), c.act.y_part, c.act.y);
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
                            .format = w.format,
                            .blocks = w.blocks,
                            .shared_w1 = w.shared_w1,
                            .shared_w3 = w.shared_w3,
                            .shared_w2 = w.shared_w2,
                            .experts = c.act.experts,
                            .weights = c.act.expert_weights,
                            .limit = static_cast<float>(config.swiglu_limit),
                            .x = w.shared_w1.in_blocks() ? c.act.normed : c.act.quantized,
                            .y = c.act.y};
  const auto run = [&](const ExpertStore::Wave& wave) { return RunWave(c, wave); };
  if (c.planning) return run({.ffn = ffn});
  const ExpertStore::WaveBuffers buffers{c.act.wave_experts, c.act.expert_outputs};
  if (c.loading) return c.experts->ForEachKind(ffn, buffers, run);
  if (c.communicator != nullptr && c.experts->reads_disk()) {
    DSV4_RETURN_IF_ERROR(c.communicator->Synchronize());  // before the host waits for the device
  }
  return c.experts->ForEachWave(w.block, ffn, buffers, run);
}

}  // namespace dsv4
