// SPDX-License-Identifier: Apache-2.0
// The head (model.md 4.6): streams to logits, for the requested rows.
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {

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
