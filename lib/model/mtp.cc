// SPDX-License-Identifier: Apache-2.0
// The MTP block (model.md 4.7).
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// out = w . act_quant(RMSNorm(x; norm)) of `rows` rows of D elements; a rank's own part of it in
// `part`.
absl::Status NormAndProject(const ForwardContext& c, int32_t rows, const void* x,
                            const uint16_t* norm, const Fp8Weight& w, void* part, void* out) {
  const int64_t hidden = c.config->hidden_size;
  DSV4_RETURN_IF_ERROR(c.Run(RmsNormParams{.rows = rows,
                                           .dim = hidden,
                                           .x = x,
                                           .weight = norm,
                                           .eps = static_cast<float>(c.config->rms_norm_eps),
                                           .quantized = c.act.mtp_quantized}));
  LinearFp8Params project{.rows = rows, .k = hidden, .x = c.act.mtp_quantized, .part_count = 1};
  project.parts[0] = {.w = w, .y = c.alone() ? out : part};
  const Slices& slices = c.shards->hidden;
  if (!c.own(slices).empty()) DSV4_RETURN_IF_ERROR(c.Run(project));
  return c.Gather(rows, slices, DTypeBytes(c.act_dtype()), part, out);
}

}  // namespace

absl::Status RunMtpBlock(const ForwardContext& c, int64_t layer, const MtpWeights& weights,
                         const Bf16Weight& embed, const LayerCache& cache) {
  const int32_t rows = c.step.rows;
  DSV4_RETURN_IF_ERROR(c.Run(EmbedRowsParams{
      .rows = rows, .copies = 1, .tokens = c.tokens, .embed = embed, .out = c.act.mtp_e}));
  // In this order: y's part may have been exchanged just before.
  DSV4_RETURN_IF_ERROR(NormAndProject(c, rows * static_cast<int32_t>(kStreams), c.act.mtp_sources,
                                      weights.hnorm, weights.h_proj, c.act.mtp_part,
                                      c.act.streams));
  DSV4_RETURN_IF_ERROR(NormAndProject(c, rows, c.act.mtp_e, weights.enorm, weights.e_proj,
                                      c.act.y_part, c.act.mtp_e));
  DSV4_RETURN_IF_ERROR(c.Run(MtpCombineParams{.rows = rows,
                                              .hidden = c.config->hidden_size,
                                              .e = c.act.mtp_e,
                                              .h = c.act.streams,
                                              .streams = c.act.streams}));
  return RunBlock(c, layer, weights.block, cache);
}

}  // namespace dsv4
