// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model.h"

#include <algorithm>
#include <utility>

#include "kernels/op/dense.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {

Model::Model(const Parts& parts, const StepLimits& limits) : parts_(parts), limits_(limits) {
  const ModelConfig& config = *parts.config;
  const RopeScaling& scaling = config.rope_scaling;
  FillRopeFrequencies(config.rope_theta, 0, 0, 0, 0, frequencies_.window);
  FillRopeFrequencies(config.compress_rope_theta, scaling.factor,
                      scaling.original_max_position_embeddings, scaling.beta_fast,
                      scaling.beta_slow, frequencies_.compressed);
  context_.config = parts.config;
  context_.dispatch = parts.dispatch;
  context_.launch = {.stream = &parts.device->stream(),
                     .numerics = parts.dispatch->numerics(),
                     .omitted_points = parts.omitted_points};
  context_.device = parts.device;
  context_.tap_memory = &tap_memory_;
}

int64_t Model::PlaceMemory(std::byte* memory, std::byte** questions) {
  const int64_t activations =
      PlanActivations(*parts_.config, limits_, context_.act_dtype(), parts_.mtp,
                      parts_.dispatch->workspace_bytes(), memory, &context_.act);
  const int64_t upload = StepUpload::DeviceBytes(*parts_.device, limits_);
  if (memory != nullptr) upload_.Place(parts_.device, limits_, memory + activations);
  if (questions != nullptr) *questions = memory + activations + upload;
  return activations + upload +
         LogitRows::DeviceBytes(*parts_.device, limits_.logit_rows, parts_.config->vocab_size);
}

absl::StatusOr<int64_t> Model::PlanBytes(const Parts& parts, const StepLimits& limits) {
  Model model(parts, limits);
  DSV4_RETURN_IF_ERROR(model.Plan());
  return model.PlaceMemory(nullptr, nullptr);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const Parts& parts, const StepLimits& limits) {
  std::unique_ptr<Model> model(new Model(parts, limits));
  DSV4_RETURN_IF_ERROR(model->Plan());
  DSV4_ASSIGN_OR_RETURN(
      model->memory_, parts.device->Allocate(model->PlaceMemory(nullptr, nullptr), "activations"));
  std::byte* questions = nullptr;
  model->PlaceMemory(model->memory_.data(), &questions);
  ForwardContext& context = model->context_;
  context.launch.workspace = context.act.workspace;
  context.step.rope = context.act.rope;
  const auto rows = static_cast<size_t>(limits.rows);
  DSV4_RETURN_IF_ERROR(model->logits_.Place(parts.device, limits.logit_rows,
                                            parts.config->vocab_size, context.act.logits, questions,
                                            parts.with_text));
  model->mtp_positions_.resize(rows);
  model->copy_from_.resize(rows);
  model->copy_to_.resize(rows);
  DSV4_RETURN_IF_ERROR(model->RecordSteps());
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
  DSV4_RETURN_IF_ERROR(LogitRows::Prepare(*parts_.device, parts_.dispatch, limits_.logit_rows,
                                          parts_.config->vocab_size));
  DSV4_RETURN_IF_ERROR(CopyStreams(limits_.rows));
  if (parts_.mtp) DSV4_RETURN_IF_ERROR(RunMtp());
  context_.planning = false;
  return absl::OkStatus();
}

absl::Status Model::Begin(const StepRows& step, const int32_t* tokens) {
  const DeviceScope scope(parts_.device);
  return StartStep(step, tokens, step.positions);
}

absl::Status Model::StartStep(const StepRows& step, const int32_t* tokens,
                              const int64_t* rope_positions) {
  DSV4_RETURN_IF_ERROR(SetStep(step, step.rows, step.sequence_count, tokens, &rope_positions));
  return ComputeRope(rope_positions);
}

absl::Status Model::SetStep(const StepRows& step, int32_t rows, int32_t sequences,
                            const int32_t* tokens, const int64_t** rope_positions) {
  if (step.rows < 1 || step.rows > limits_.rows || step.sequence_count > limits_.sequences) {
    return InvalidArgument("a step of ", step.rows, " rows and ", step.sequence_count,
                           " sequences; the limits are ", limits_.rows, " and ", limits_.sequences);
  }
  context_.step = step;
  context_.step.rope = context_.act.rope;
  context_.step.max_position = limits_.positions;
  context_.tokens = tokens;
  return upload_.Step(rows, sequences, &context_.step, &context_.tokens, rope_positions);
}

absl::Status Model::ComputeRope(const int64_t* rope_positions) {
  return context_.Run(RopeTableParams{.rows = context_.step.rows,
                                      .positions = rope_positions,
                                      .frequencies = frequencies_,
                                      .out = context_.act.rope});
}

// For up to kRecordedRows rows: powers of two and what lies half way between them.
absl::Status Model::RecordSteps() {
  if (!parts_.graphs || parts_.device->host_memory()) return absl::OkStatus();
  constexpr int32_t kRecordedRows = 64;
  for (int32_t rows = 1; rows <= std::min(kRecordedRows, limits_.rows);) {
    RecordedStep recorded{rows, std::min(rows, limits_.sequences), nullptr, nullptr};
    // A step of padding alone: what it leaves in the device's memory is nobody's.
    StepRows padding;
    const int32_t* tokens = nullptr;
    const int64_t* rope_positions = nullptr;
    padding.max_position = limits_.positions;
    padding.rope = context_.act.rope;
    DSV4_RETURN_IF_ERROR(
        upload_.Step(rows, recorded.sequences, &padding, &tokens, &rope_positions));
    context_.step = padding;
    context_.tokens = tokens;
    DSV4_ASSIGN_OR_RETURN(recorded.forward, parts_.device->Record([&]() -> absl::Status {
      DSV4_RETURN_IF_ERROR(ComputeRope(rope_positions));
      DSV4_RETURN_IF_ERROR(Embed());
      for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
        DSV4_RETURN_IF_ERROR(RunLayer(layer));
      }
      return absl::OkStatus();
    }));
    if (recorded.forward == nullptr) return absl::OkStatus();
    if (parts_.mtp) {
      SetMtpSources({}, rows);
      CopyRowsParams sources;
      DSV4_RETURN_IF_ERROR(UploadCopies(rows, &sources));
      DSV4_ASSIGN_OR_RETURN(recorded.mtp, parts_.device->Record([&]() -> absl::Status {
        DSV4_RETURN_IF_ERROR(ComputeRope(rope_positions));
        DSV4_RETURN_IF_ERROR(context_.Run(sources));
        return RunMtp();
      }));
    }
    recorded_.push_back(std::move(recorded));
    rows = rows < 4 ? rows + 1 : (rows & (rows - 1)) == 0 ? rows + rows / 2 : rows / 3 * 4;
  }
  return parts_.device->Finish();
}

const Model::RecordedStep* Model::Recorded(const StepRows& step) const {
  if (context_.tap != nullptr || parts_.dispatch->recording()) return nullptr;
  const auto recorded =
      std::find_if(recorded_.begin(), recorded_.end(), [&](const RecordedStep& candidate) {
        return candidate.rows >= step.rows && candidate.sequences >= step.sequence_count;
      });
  return recorded != recorded_.end() ? &*recorded : nullptr;
}

absl::Status Model::Embed() {
  const DeviceScope scope(parts_.device);
  return context_.Run(EmbedRowsParams{.rows = context_.step.rows,
                                      .copies = static_cast<int32_t>(kStreams),
                                      .tokens = context_.tokens,
                                      .embed = parts_.weights->embed,
                                      .out = context_.act.streams});
}

absl::Status Model::RunLayer(int64_t layer) {
  const DeviceScope scope(parts_.device);
  return RunBlock(context_, layer, parts_.weights->layers[static_cast<size_t>(layer)],
                  parts_.layers[static_cast<size_t>(layer)]);
}

absl::Status Model::Forward(const StepRows& step, const int32_t* tokens,
                            const std::function<bool()>* stop) {
  const DeviceScope scope(parts_.device);
  const auto stopped = [&](int64_t layer) {
    if (stop == nullptr || !(*stop)()) return absl::OkStatus();
    return Cancelled("stopped before layer ", layer, " of ", parts_.config->num_hidden_layers);
  };
  if (const RecordedStep* recorded = Recorded(step)) {
    DSV4_RETURN_IF_ERROR(stopped(0));
    const int64_t* rope_positions = step.positions;
    DSV4_RETURN_IF_ERROR(
        SetStep(step, recorded->rows, recorded->sequences, tokens, &rope_positions));
    recorded->forward->Launch();
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(StartStep(step, tokens, step.positions));
  DSV4_RETURN_IF_ERROR(Embed());
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    DSV4_RETURN_IF_ERROR(stopped(layer));
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
  }
  return absl::OkStatus();
}

const std::byte* Model::StreamsOfRow(int32_t row) const {
  return static_cast<const std::byte*>(context_.act.streams) + row * streams_row_bytes();
}

int64_t Model::streams_row_bytes() const {
  return kStreams * parts_.config->hidden_size * DTypeBytes(activation_dtype());
}

absl::Status Model::SaveStreams(absl::Span<const int32_t> rows, absl::Span<std::byte* const> to) {
  if (rows.size() != to.size() || rows.size() > copy_to_.size()) {
    return InvalidArgument("streams of ", rows.size(), " rows to ", to.size(),
                           " places; the limit is ", copy_to_.size());
  }
  if (rows.empty()) return absl::OkStatus();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= context_.step.rows) {
      return InvalidArgument("streams of row ", rows[i], "; the step has ", context_.step.rows);
    }
    copy_from_[i] = StreamsOfRow(rows[i]);
    copy_to_[i] = to[i];
  }
  return CopyStreams(static_cast<int32_t>(rows.size()));
}

absl::Status Model::UploadCopies(int32_t rows, CopyRowsParams* copies) {
  *copies = {.rows = rows,
             .row_bytes = streams_row_bytes(),
             .from = copy_from_.data(),
             .to = copy_to_.data()};
  if (context_.planning) return absl::OkStatus();
  return upload_.Pointers(rows, &copies->from, &copies->to);
}

absl::Status Model::CopyStreams(int32_t rows) {
  const DeviceScope scope(parts_.device);
  CopyRowsParams copies;
  DSV4_RETURN_IF_ERROR(UploadCopies(rows, &copies));
  return context_.Run(copies);
}

absl::Status Model::ReadStreams(absl::Span<std::byte> to) {
  return parts_.device->Download(to.data(), static_cast<const std::byte*>(context_.act.streams),
                                 static_cast<int64_t>(to.size()));
}

absl::Status Model::WriteStreams(absl::Span<const std::byte> from) {
  return parts_.device->Upload(static_cast<std::byte*>(context_.act.streams), from.data(),
                               static_cast<int64_t>(from.size()));
}

absl::Status Model::ForwardMtp(const StepRows& step, const int32_t* tokens,
                               absl::Span<const std::byte* const> sources) {
  if (!parts_.mtp) return Internal("the MTP block was not planned for");
  if (step.rows > limits_.rows || sources.size() != static_cast<size_t>(step.rows)) {
    return InvalidArgument("an MTP step of ", step.rows, " rows with ", sources.size(),
                           " sources; the limit is ", limits_.rows);
  }
  for (int32_t row = 0; row < step.rows; ++row) {
    if (step.positions[row] < 1) {
      return InvalidArgument("MTP slot ", step.positions[row], "; the first is 1");
    }
    mtp_positions_[row] = step.positions[row] - 1;
  }
  const DeviceScope scope(parts_.device);
  if (const RecordedStep* recorded = Recorded(step)) {
    const int64_t* rope_positions = mtp_positions_.data();
    DSV4_RETURN_IF_ERROR(
        SetStep(step, recorded->rows, recorded->sequences, tokens, &rope_positions));
    SetMtpSources(sources, recorded->rows);
    CopyRowsParams copies;
    DSV4_RETURN_IF_ERROR(UploadCopies(recorded->rows, &copies));
    recorded->mtp->Launch();
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(StartStep(step, tokens, mtp_positions_.data()));
  SetMtpSources(sources, step.rows);
  DSV4_RETURN_IF_ERROR(CopyStreams(step.rows));
  return RunMtp();
}

// Rows of padding are anything.
void Model::SetMtpSources(absl::Span<const std::byte* const> sources, int32_t rows) {
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    copy_to_[row] = static_cast<std::byte*>(context_.act.mtp_sources) +
                    static_cast<int64_t>(row) * streams_row_bytes();
    copy_from_[row] = row < sources.size() ? sources[row] : StreamsOfRow(static_cast<int32_t>(row));
  }
}

absl::Status Model::RunMtp() {
  const DeviceScope scope(parts_.device);
  return RunMtpBlock(context_, mtp_layer(), *parts_.weights->mtp, parts_.weights->embed,
                     parts_.layers[static_cast<size_t>(mtp_layer())]);
}

absl::Status Model::ComputeLogits(absl::Span<const int32_t> row_of) {
  return LaunchHead(parts_.weights->hc_head, parts_.weights->norm, row_of);
}

absl::Status Model::ComputeMtpLogits(absl::Span<const int32_t> row_of) {
  if (!parts_.mtp) return Internal("the MTP block was not planned for");
  return LaunchHead(parts_.weights->mtp->hc_head, parts_.weights->mtp->norm, row_of);
}

absl::StatusOr<const float*> Model::Logits(absl::Span<const int32_t> row_of) {
  DSV4_RETURN_IF_ERROR(ComputeLogits(row_of));
  return FetchLogits(row_of.size());
}

absl::StatusOr<const float*> Model::MtpLogits(absl::Span<const int32_t> row_of) {
  DSV4_RETURN_IF_ERROR(ComputeMtpLogits(row_of));
  return FetchLogits(row_of.size());
}

absl::StatusOr<const float*> Model::FetchLogits(size_t rows) {
  DSV4_RETURN_IF_ERROR(logits_.Fetch(0, static_cast<int32_t>(rows)));
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> first, logits_.Row(0));
  return first.data();
}

absl::Status Model::LaunchHead(const HyperConnectionWeights& hc, const uint16_t* norm,
                               absl::Span<const int32_t> row_of) {
  const int32_t rows = static_cast<int32_t>(row_of.size());
  if (rows < 1 || rows > limits_.logit_rows) {
    return InvalidArgument("logits of ", rows, " rows; the limit is ", limits_.logit_rows);
  }
  const DeviceScope scope(parts_.device);
  const int32_t* chosen = row_of.data();
  DSV4_RETURN_IF_ERROR(upload_.Rows(rows, &chosen));
  logits_.Begin(rows);
  return RunHead(context_, hc, norm, parts_.weights->head, rows, chosen);
}

}  // namespace dsv4
