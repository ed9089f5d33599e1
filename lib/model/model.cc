// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model.h"

#include "kernels/op/dense.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const Parts& parts, const StepLimits& limits) {
  std::unique_ptr<Model> model(new Model(parts));
  model->limits_ = limits;
  const ModelConfig& config = *parts.config;
  const RopeScaling& scaling = config.rope_scaling;
  FillRopeFrequencies(config.rope_theta, 0, 0, 0, 0, model->frequencies_.window);
  FillRopeFrequencies(config.compress_rope_theta, scaling.factor,
                      scaling.original_max_position_embeddings, scaling.beta_fast,
                      scaling.beta_slow, model->frequencies_.compressed);
  ForwardContext& context = model->context_;
  context.config = parts.config;
  context.dispatch = parts.dispatch;
  context.launch = {.stream = &parts.device->stream(),
                    .numerics = parts.dispatch->numerics(),
                    .omitted_points = parts.omitted_points};
  DSV4_RETURN_IF_ERROR(model->Plan());
  const auto plan = [&](std::byte* memory) {
    return PlanActivations(config, limits, context.act_dtype(), parts.mtp,
                           parts.dispatch->workspace_bytes(), memory, &context.act);
  };
  DSV4_ASSIGN_OR_RETURN(model->memory_, parts.device->Allocate(plan(nullptr), "activations"));
  plan(model->memory_.data());
  context.launch.workspace = context.act.workspace;
  context.step.rope = context.act.rope;
  return model;
}

absl::Status Model::Plan() {
  context_.planning = true;
  context_.step = {
      .rows = limits_.rows, .sequence_count = limits_.sequences, .max_position = limits_.positions};
  DSV4_RETURN_IF_ERROR(context_.Run(RopeTableParams{.rows = limits_.rows}));
  DSV4_RETURN_IF_ERROR(Embed());
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
  }
  const Weights& weights = *parts_.weights;
  DSV4_RETURN_IF_ERROR(
      RunHead(context_, weights.hc_head, weights.norm, weights.head, limits_.logit_rows, nullptr));
  if (parts_.mtp) DSV4_RETURN_IF_ERROR(RunMtp(nullptr));
  context_.planning = false;
  return absl::OkStatus();
}

absl::Status Model::Begin(const StepRows& step, const int32_t* tokens) {
  if (step.rows < 1 || step.rows > limits_.rows || step.sequence_count > limits_.sequences) {
    return InvalidArgument("a step of ", step.rows, " rows and ", step.sequence_count,
                           " sequences; the limits are ", limits_.rows, " and ", limits_.sequences);
  }
  context_.step = step;
  context_.step.rope = context_.act.rope;
  context_.step.max_position = limits_.positions;
  context_.tokens = tokens;
  return context_.Run(RopeTableParams{.rows = step.rows,
                                      .positions = step.positions,
                                      .frequencies = frequencies_,
                                      .out = context_.act.rope});
}

absl::Status Model::Embed() {
  return context_.Run(EmbedRowsParams{.rows = context_.step.rows,
                                      .copies = static_cast<int32_t>(kStreams),
                                      .tokens = context_.tokens,
                                      .embed = parts_.weights->embed,
                                      .out = context_.act.streams});
}

absl::Status Model::RunLayer(int64_t layer) {
  return RunBlock(context_, layer, parts_.weights->layers[static_cast<size_t>(layer)],
                  parts_.cache->layer(layer));
}

absl::Status Model::Forward(const StepRows& step, const int32_t* tokens) {
  DSV4_RETURN_IF_ERROR(Begin(step, tokens));
  DSV4_RETURN_IF_ERROR(Embed());
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
  }
  return absl::OkStatus();
}

absl::Status Model::RunMtp(const int32_t* next_tokens) {
  if (!parts_.mtp) return Internal("the MTP block was not planned for");
  return RunMtpBlock(context_, mtp_layer(), *parts_.weights->mtp, parts_.weights->embed,
                     next_tokens, parts_.cache->layer(mtp_layer()));
}

absl::StatusOr<const float*> Model::Logits(absl::Span<const int32_t> row_of) {
  return HeadLogits(parts_.weights->hc_head, parts_.weights->norm, row_of);
}

absl::StatusOr<const float*> Model::MtpLogits(absl::Span<const int32_t> row_of) {
  return HeadLogits(parts_.weights->mtp->hc_head, parts_.weights->mtp->norm, row_of);
}

absl::StatusOr<const float*> Model::HeadLogits(const HyperConnectionWeights& hc,
                                               const uint16_t* norm,
                                               absl::Span<const int32_t> row_of) {
  const int32_t rows = static_cast<int32_t>(row_of.size());
  if (rows < 1 || rows > limits_.logit_rows) {
    return InvalidArgument("logits of ", rows, " rows; the limit is ", limits_.logit_rows);
  }
  DSV4_RETURN_IF_ERROR(RunHead(context_, hc, norm, parts_.weights->head, rows, row_of.data()));
  return context_.act.logits;
}

}  // namespace dsv4
