// SPDX-License-Identifier: Apache-2.0
#include "lib/model/running_pass.h"

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

RunningPass::RunningPass(const ModelParts& from, const StepLimits& most)
    : parts(from), limits(most) {
  const ModelConfig& config = *parts.config;
  const RopeScaling& scaling = config.rope_scaling;
  FillRopeFrequencies(config.rope_theta, 0, 0, 0, 0, frequencies.window);
  FillRopeFrequencies(config.compress_rope_theta, scaling.factor,
                      scaling.original_max_position_embeddings, scaling.beta_fast,
                      scaling.beta_slow, frequencies.compressed);
  context.config = parts.config;
  context.shards = parts.shards;
  context.rank = parts.rank;
  context.communicator = parts.communicator;
  context.dispatch = parts.dispatch;
  context.launch = {.stream = &parts.device->stream(),
                    .numerics = parts.dispatch->numerics(),
                    .omitted_points = parts.omitted_points};
  context.side = context.launch;
  context.side.stream = parts.device->side_stream();
  context.device = parts.device;
  context.experts = parts.experts;
}

absl::StatusOr<int64_t> RunningPass::PlaceInputs(std::byte* memory) {
  const int64_t vocab = parts.config->vocab_size;
  const int64_t mask_bytes = TokenMasks::DeviceBytes(*parts.device, limits.logit_rows, vocab);
  if (memory != nullptr) {
    DSV4_RETURN_IF_ERROR(
        masks.Place(parts.device, limits.logit_rows, vocab, memory, parts.with_text));
    DSV4_RETURN_IF_ERROR(upload.Place(parts.device, limits, &masks, memory + mask_bytes));
  }
  return mask_bytes + StepUpload::DeviceBytes(*parts.device, limits);
}

absl::Status RunningPass::Set(const PassInputs& from) {
  return Set(&upload, {from.step.rows, from.step.sequence_count, 0}, {}, from);
}

absl::Status RunningPass::Set(StepUpload* to, const StepUpload::Shape& shape,
                              const LogitRequests& head, PassInputs from,
                              FollowingDrafts* following, bool first) {
  const StepRows& step = from.step;
  if (shape.rows < 1 || step.rows > limits.rows || step.sequence_count > limits.sequences) {
    return InvalidArgument("a step of ", step.rows, " rows and ", step.sequence_count,
                           " sequences; the limits are ", limits.rows, " and ", limits.sequences);
  }
  from.step.rope = context.act.rope;
  from.step.max_position = limits.positions;
  DSV4_RETURN_IF_ERROR(to->Pass(shape, head, &from, following, first));
  inputs = from;
  heads = 0;
  context.step = inputs.step;
  context.tokens = inputs.tokens;
  return absl::OkStatus();
}

absl::Status RunningPass::ComputeRope() {
  return context.Run(RopeTableParams{.rows = context.step.rows,
                                     .positions = inputs.rope_positions,
                                     .frequencies = frequencies,
                                     .out = context.act.rope});
}

absl::Status RunningPass::ExpectHead(const LogitRequests& head) const {
  if (static_cast<int64_t>(head.rows.size()) <= limits.logit_rows) return absl::OkStatus();
  return InvalidArgument("logits of ", head.rows.size(), " rows; the limit is ", limits.logit_rows);
}

TokenCandidatesParams RunningPass::Candidates(int32_t rows) {
  return {.rows = rows,
          .vocab = parts.config->vocab_size,
          .queries = inputs.queries,
          .logits = context.act.logits,
          .lists = logits.lists(),
          .chosen = chosen};
}

}  // namespace dsv4
