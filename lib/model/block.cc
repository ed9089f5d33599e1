// SPDX-License-Identifier: Apache-2.0
#include "lib/model/block.h"

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

HcPreParams HcPre(const ForwardContext& c, const HyperConnectionWeights& hc, const uint16_t* norm,
                  const HcUpdate& update) {
  return {.rows = c.step.rows,
          .hidden = c.config->hidden_size,
          .streams = c.act.streams,
          .fn = hc.fn,
          .base = hc.base,
          .scale = hc.scale,
          .hc_eps = static_cast<float>(c.config->hc_eps),
          .norm_eps = static_cast<float>(c.config->rms_norm_eps),
          .sinkhorn_iters = static_cast<int32_t>(c.config->hc_sinkhorn_iters),
          .norm = norm,
          .normed = c.act.normed,
          .quantized = c.act.quantized,
          .post = c.act.post,
          .comb = c.act.comb,
          .update = update};
}

HcPostParams HcPost(const ForwardContext& c) {
  return {.rows = c.step.rows,
          .hidden = c.config->hidden_size,
          .y = c.act.y,
          .post = c.act.post,
          .comb = c.act.comb,
          .streams = c.act.streams,
          .out = c.act.streams};
}

}  // namespace

absl::Status RunBlock(const ForwardContext& context, int64_t layer, const BlockWeights& weights,
                      const LayerCache& cache) {
  const int64_t hidden = context.config->hidden_size;
  DSV4_RETURN_IF_ERROR(context.Run(HcPre(context, weights.hc_attn, weights.attn_norm, {})));
  DSV4_RETURN_IF_ERROR(RunAttention(context, layer, weights, cache));
  context.Show(layer, "attn_out", context.act.y, context.act_dtype(), hidden);

  const Activations& act = context.act;
  const HcUpdate attention{act.y, act.post, act.comb, act.streams};
  DSV4_RETURN_IF_ERROR(context.Run(HcPre(context, weights.hc_ffn, weights.ffn_norm, attention)));
  DSV4_RETURN_IF_ERROR(RunMoe(context, layer, weights.moe));
  context.Show(layer, "ffn_out", context.act.y, context.act_dtype(), hidden);
  DSV4_RETURN_IF_ERROR(context.Run(HcPost(context)));
  context.Show(layer, "streams", context.act.streams, context.act_dtype(), kStreams * hidden);
  return absl::OkStatus();
}

absl::Status RunHead(const ForwardContext& c, const HyperConnectionWeights& hc_head,
                     const uint16_t* norm, const Bf16Weight& head, int32_t rows,
                     const int32_t* row_of, float* part, void* mixed) {
  DSV4_RETURN_IF_ERROR(c.Run(HcHeadParams{.rows = rows,
                                          .row_of = row_of,
                                          .hidden = c.config->hidden_size,
                                          .streams = c.act.streams,
                                          .fn = hc_head.fn,
                                          .base = hc_head.base,
                                          .scale = hc_head.scale,
                                          .hc_eps = static_cast<float>(c.config->hc_eps),
                                          .norm_eps = static_cast<float>(c.config->rms_norm_eps),
                                          .norm = norm,
                                          .normed = c.act.head,
                                          .mixed = mixed}));
  LinearBf16Params project{
      .rows = rows, .k = c.config->hidden_size, .x = c.act.head, .part_count = 1};
  project.parts[0] = {.w = head, .y = part};
  const Slices& vocab = c.shards->vocab;
  if (!c.own(vocab).empty()) DSV4_RETURN_IF_ERROR(c.Run(project));
  return c.Gather(rows, vocab, sizeof(float), part, c.act.logits);
}

}  // namespace dsv4
