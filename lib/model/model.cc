// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model.h"

#include "kernels/op/dense.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// Of Device::Mark; those before are ExpertFetcher's.
constexpr int kFirstPaceMark = 2, kPaceMarks = 2;
static_assert(kFirstPaceMark + kPaceMarks <= Device::kMarks);

}  // namespace

Model::Model(const Parts& parts, const StepLimits& limits) : parts_(parts), limits_(limits) {
  const ModelConfig& config = *parts.config;
  const RopeScaling& scaling = config.rope_scaling;
  FillRopeFrequencies(config.rope_theta, 0, 0, 0, 0, frequencies_.window);
  FillRopeFrequencies(config.compress_rope_theta, scaling.factor,
                      scaling.original_max_position_embeddings, scaling.beta_fast,
                      scaling.beta_slow, frequencies_.compressed);
  context_.config = parts.config;
  context_.shards = parts.shards;
  context_.rank = parts.rank;
  context_.communicator = parts.communicator;
  context_.dispatch = parts.dispatch;
  context_.launch = {.stream = &parts.device->stream(),
                     .numerics = parts.dispatch->numerics(),
                     .omitted_points = parts.omitted_points};
  context_.side = context_.launch;
  context_.side.stream = parts.device->side_stream();
  context_.device = parts.device;
  context_.share = parts.share;
  context_.fetcher = parts.fetcher;
  context_.streamer = parts.streamer;
  context_.stream_rows = StreamRows();
  context_.pages = parts.rank == 0 ? parts.pages : nullptr;  // ranks choose alike
  context_.tap_memory = &tap_memory_;
  if (parts.drafts) {
    drafter_ = DraftBlocks::Of(
        {.config = parts.config,
         .weights = parts.weights,
         .layers = parts.layers.subspan(static_cast<size_t>(config.num_hidden_layers)),
         .shards = parts.shards,
         .rank = parts.rank});
  }
  if (chains()) {
    chain_inputs_.resize(ChainPasses());
    chain_fetched_.resize(ChainPasses() - 1);
  }
}

Model::~Model() = default;

absl::StatusOr<int64_t> Model::PlaceMemory(std::byte* memory) {
  Device* const device = parts_.device;
  const int64_t vocab = parts_.config->vocab_size;
  const StepLimits recorded = RecordedLimits();
  int64_t bytes =
      PlanActivations(*parts_.config, limits_, *parts_.shards, parts_.rank,
                      parts_.fetches || parts_.streams_experts || parts_.shares_experts,
                      context_.act_dtype(), parts_.dispatch->workspace_bytes(),
                      parts_.dispatch->workspace_bytes(StreamRole::kSide), memory, &context_.act);
  if (drafter_ != nullptr) {
    bytes += drafter_->Place(limits_, context_.act_dtype(),
                             memory == nullptr ? nullptr : memory + bytes);
  }
  if (memory != nullptr) {
    DSV4_RETURN_IF_ERROR(
        masks_.Place(device, limits_.logit_rows, vocab, memory + bytes, parts_.with_text));
  }
  bytes += TokenMasks::DeviceBytes(*device, limits_.logit_rows, vocab);
  if (memory != nullptr) {
    DSV4_RETURN_IF_ERROR(upload_.Place(device, limits_, &masks_, memory + bytes));
  }
  bytes += StepUpload::DeviceBytes(*device, limits_);
  if (chains()) {
    if (memory != nullptr) {
      chosen_ = reinterpret_cast<int32_t*>(memory + bytes);
      context_.chosen = chosen_;
    }
    bytes += RoundUp<int64_t>(limits_.logit_rows * int64_t{sizeof(int32_t)}, 64);
  }
  if (parts_.fetches && parts_.shards->ranks > 1) {
    if (memory != nullptr) read_failures_ = StatusExchange(device, memory + bytes);
    bytes += StatusExchange::DeviceBytes(parts_.shards->ranks);
  }
  if (!Records()) return bytes;
  StepLimits later = recorded;  // passes of a chain
  later.rows = recorded.sequences;
  later.drafts = 0;
  for (FetchedInputs& fetched : chain_fetched_) {
    if (memory != nullptr) {
      DSV4_RETURN_IF_ERROR(fetched.upload.PlaceFetched(device, later, &masks_, memory + bytes));
    }
    bytes += StepUpload::DeviceBytes(*device, later);
  }
  for (const Pass pass : {Pass::kMain, Pass::kDraft}) {
    if (pass == Pass::kDraft && drafter_ == nullptr) continue;
    if (memory != nullptr) {
      DSV4_RETURN_IF_ERROR(
          FetchedOf(pass).upload.PlaceFetched(device, recorded, &masks_, memory + bytes));
    }
    bytes += StepUpload::DeviceBytes(*device, recorded);
  }
  return bytes;
}

absl::StatusOr<int64_t> Model::PlanBytes(const Parts& parts, const StepLimits& limits) {
  Model model(parts, limits);
  DSV4_RETURN_IF_ERROR(model.Plan());
  return model.PlaceMemory(nullptr);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(const Parts& parts, const StepLimits& limits) {
  std::unique_ptr<Model> model(new Model(parts, limits));
  DSV4_RETURN_IF_ERROR(model->Plan());
  DSV4_ASSIGN_OR_RETURN(const int64_t bytes, model->PlaceMemory(nullptr));
  DSV4_ASSIGN_OR_RETURN(model->memory_, parts.device->Allocate(bytes, "activations"));
  DSV4_RETURN_IF_ERROR(model->PlaceMemory(model->memory_.data()).status());
  ForwardContext& context = model->context_;
  context.launch.workspace = context.act.workspace;
  context.side.workspace = context.act.side_workspace;
  context.step.rope = context.act.rope;
  const auto rows = static_cast<size_t>(limits.rows);
  DSV4_RETURN_IF_ERROR(model->logits_.Place(parts.device, limits.logit_rows,
                                            parts.config->vocab_size, context.act.logits));
  model->draft_positions_.resize(rows);
  model->copy_from_.resize(rows);
  model->copy_to_.resize(rows);
  if (parts.share != nullptr) DSV4_RETURN_IF_ERROR(parts.share->Reserve(limits.rows));
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
    DSV4_RETURN_IF_ERROR(TapLayer(layer));
  }
  DSV4_RETURN_IF_ERROR(RunHeadOf(Pass::kMain, limits_.logit_rows, true));
  DSV4_RETURN_IF_ERROR(context_.Run(CopyParams(limits_.rows, nullptr, nullptr)));
  if (drafter_ != nullptr) {
    DSV4_RETURN_IF_ERROR(RunDraft());
    DSV4_RETURN_IF_ERROR(RunHeadOf(Pass::kDraft, limits_.logit_rows, true));
    if (drafter_->follows()) {
      DSV4_RETURN_IF_ERROR(
          drafter_->Follow(context_, limits_.logit_rows, nullptr, nullptr, nullptr));
    }
  }
  context_.planning = false;
  return absl::OkStatus();
}

absl::Status Model::Begin(const StepRows& step, const int32_t* tokens) {
  const DeviceScope scope(parts_.device);
  BeginFetches();
  DSV4_RETURN_IF_ERROR(SetPass({.step = step, .tokens = tokens, .rope_positions = step.positions}));
  return ComputeRope();
}

absl::Status Model::SetPass(const PassInputs& inputs) {
  return SetPass(&upload_, {inputs.step.rows, inputs.step.sequence_count, 0}, {}, inputs);
}

absl::Status Model::SetPass(StepUpload* upload, const StepUpload::Shape& shape,
                            const HeadRows& head, PassInputs inputs, FollowingDrafts* following,
                            bool first) {
  const StepRows& step = inputs.step;
  if (shape.rows < 1 || step.rows > limits_.rows || step.sequence_count > limits_.sequences) {
    return InvalidArgument("a step of ", step.rows, " rows and ", step.sequence_count,
                           " sequences; the limits are ", limits_.rows, " and ", limits_.sequences);
  }
  inputs.step.rope = context_.act.rope;
  inputs.step.max_position = limits_.positions;
  DSV4_RETURN_IF_ERROR(upload->Pass(shape, head, &inputs, following, first));
  inputs_ = inputs;
  heads_ = 0;
  context_.step = inputs_.step;
  context_.tokens = inputs_.tokens;
  return absl::OkStatus();
}

absl::Status Model::ComputeRope() {
  return context_.Run(RopeTableParams{.rows = context_.step.rows,
                                      .positions = inputs_.rope_positions,
                                      .frequencies = frequencies_,
                                      .out = context_.act.rope});
}

absl::Status Model::SplitExperts() {
  Activations& act = context_.act;
  if (act.products != nullptr) return absl::OkStatus();
  const int64_t elements = int64_t{limits_.rows} * (parts_.config->num_experts_per_tok + 1) *
                           parts_.config->moe_intermediate_size;
  DSV4_ASSIGN_OR_RETURN(
      products_, parts_.device->Allocate(elements * DTypeBytes(activation_dtype()), "products"));
  act.products = act.products_part = products_.data();
  return absl::OkStatus();
}

absl::Status Model::EndFetches(const absl::Status& status) {
  if (parts_.fetcher == nullptr || !(status.ok() || absl::IsCancelled(status))) return status;
  absl::Status failure = parts_.fetcher->EndPass();
  if (parts_.communicator != nullptr) {
    failure = read_failures_.Exchange(parts_.communicator, failure);
    parts_.fetcher->Fail(failure);
  }
  return failure.ok() ? status : failure;
}

absl::Status Model::Synchronize() {
  DSV4_RETURN_IF_ERROR(AwaitExchanges());
  DSV4_RETURN_IF_ERROR(parts_.device->Synchronize());
  for (FetchedInputs& fetched : fetched_) fetched.launched = false;
  for (FetchedInputs& fetched : chain_fetched_) fetched.launched = false;
  return absl::OkStatus();
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

absl::Status Model::TapLayer(int64_t layer) {
  if (drafter_ == nullptr) return absl::OkStatus();
  const DeviceScope scope(parts_.device);
  DSV4_RETURN_IF_ERROR(drafter_->AfterLayer(context_, layer));
  return layer + 1 == parts_.config->num_hidden_layers ? drafter_->AfterLayers(context_)
                                                       : absl::OkStatus();
}

absl::Status Model::Stopped(const std::function<bool()>* stop, int64_t layer) const {
  if (stop == nullptr || !(*stop)()) return absl::OkStatus();
  return Cancelled("stopped before layer ", layer, " of ", parts_.config->num_hidden_layers);
}

// Layers of long prompts take long: a device that runs behind its launches has at most two of them
// queued, so that a pass that stops ends soon.
absl::Status Model::Pace(int64_t layer) {
  const int mark = static_cast<int>(layer % kPaceMarks);
  DSV4_RETURN_IF_ERROR(parts_.device->Mark(kFirstPaceMark + mark));
  return parts_.device->Await(kFirstPaceMark + (mark + 1) % kPaceMarks);
}

absl::Status Model::RunLayers(const std::function<bool()>* stop) {
  DSV4_RETURN_IF_ERROR(ComputeRope());
  DSV4_RETURN_IF_ERROR(Embed());
  const bool paces = stop != nullptr && context_.step.rows > RecordedLimits().rows;
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    if (paces) DSV4_RETURN_IF_ERROR(Pace(layer));
    DSV4_RETURN_IF_ERROR(Stopped(stop, layer));
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
    DSV4_RETURN_IF_ERROR(TapLayer(layer));
  }
  return absl::OkStatus();
}

absl::Status Model::RunPass(Pass pass) {
  return pass == Pass::kMain ? RunLayers(nullptr) : RunDraft();
}

absl::Status Model::Forward(const StepRows& step, const int32_t* tokens,
                            const std::function<bool()>* stop, const HeadRows& head) {
  const DeviceScope scope(parts_.device);
  DSV4_RETURN_IF_ERROR(ExpectHead(head));
  const PassInputs inputs{.step = step, .tokens = tokens, .rope_positions = step.positions};
  if (parts_.mover != nullptr) DSV4_RETURN_IF_ERROR(parts_.mover->BetweenPasses());
  if (const RecordedStep* recorded = Recorded(step)) {
    DSV4_RETURN_IF_ERROR(Stopped(stop, 0));
    return Replay(Pass::kMain, *recorded, head, inputs);
  }
  DSV4_RETURN_IF_ERROR(SetPass(inputs));
  BeginFetches();
  return EndFetches(RunMain(step, tokens, stop, head));
}

absl::Status Model::RunMain(const StepRows& step, const int32_t* tokens,
                            const std::function<bool()>* stop, const HeadRows& head) {
  if (parts_.fetcher != nullptr) {
    DSV4_RETURN_IF_ERROR(parts_.fetcher->Prefetch({tokens, static_cast<size_t>(step.rows)}));
  }
  DSV4_RETURN_IF_ERROR(RunLayers(stop));
  return LaunchHead(Pass::kMain, head);
}

const std::byte* Model::StreamsOfRow(int32_t row) const {
  return static_cast<const std::byte*>(context_.act.streams) + row * streams_row_bytes();
}

int64_t Model::streams_row_bytes() const {
  return kStreams * parts_.config->hidden_size * DTypeBytes(activation_dtype());
}

absl::Status Model::StoreStreams(absl::Span<const int32_t> rows, absl::Span<const int32_t> slots) {
  if (rows.size() != slots.size() || rows.size() > copy_to_.size()) {
    return InvalidArgument("streams of ", rows.size(), " rows to ", slots.size(),
                           " state slots; the limit is ", copy_to_.size());
  }
  if (rows.empty()) return absl::OkStatus();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= context_.step.rows) {
      return InvalidArgument("streams of row ", rows[i], "; the step has ", context_.step.rows);
    }
    copy_from_[i] = StreamsOfRow(rows[i]);
    copy_to_[i] = parts_.streams.Slot(slots[i]);
  }
  return CopyStreams(static_cast<int32_t>(rows.size()));
}

CopyRowsParams Model::CopyParams(int32_t rows, const std::byte* const* from,
                                 std::byte* const* to) const {
  return {.rows = rows, .row_bytes = streams_row_bytes(), .from = from, .to = to};
}

absl::Status Model::CopyStreams(int32_t rows) {
  const DeviceScope scope(parts_.device);
  const std::byte* const* from = copy_from_.data();
  std::byte* const* to = copy_to_.data();
  DSV4_RETURN_IF_ERROR(upload_.Pointers(rows, &from, &to));
  return context_.Run(CopyParams(rows, from, to));
}

absl::Status Model::ReadStreams(absl::Span<std::byte> to) {
  DSV4_RETURN_IF_ERROR(AwaitExchanges());
  return parts_.device->Download(to.data(), static_cast<const std::byte*>(context_.act.streams),
                                 static_cast<int64_t>(to.size()));
}

absl::Status Model::WriteStreams(absl::Span<const std::byte> from) {
  return parts_.device->Upload(static_cast<std::byte*>(context_.act.streams), from.data(),
                               static_cast<int64_t>(from.size()));
}

absl::StatusOr<const float*> Model::Logits(absl::Span<const int32_t> row_of) {
  return LaunchAndFetch(Pass::kMain, row_of);
}

absl::StatusOr<const float*> Model::LaunchAndFetch(Pass pass, absl::Span<const int32_t> row_of) {
  const DeviceScope scope(parts_.device);
  if (row_of.empty()) return InvalidArgument("logits of no rows");
  const HeadRows head{.rows = row_of};
  DSV4_RETURN_IF_ERROR(ExpectHead(head));
  DSV4_RETURN_IF_ERROR(LaunchHead(pass, head));
  DSV4_RETURN_IF_ERROR(AwaitExchanges());
  DSV4_RETURN_IF_ERROR(logits_.Fetch(0, static_cast<int32_t>(row_of.size())));
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> first, logits_.Row(0));
  return first.data();
}

absl::Status Model::ExpectHead(const HeadRows& head) const {
  if (static_cast<int64_t>(head.rows.size()) <= limits_.logit_rows) return absl::OkStatus();
  return InvalidArgument("logits of ", head.rows.size(), " rows; the limit is ",
                         limits_.logit_rows);
}

absl::Status Model::LaunchHead(Pass pass, const HeadRows& head) {
  if (head.rows.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(upload_.Head(head, &inputs_));
  logits_.Begin(head);
  // Recorded passes use part 0, and no two exchanges after one another may use the same.
  return RunHeadOf(pass, static_cast<int32_t>(head.rows.size()), !head.questions.empty(),
                   ++heads_ % 2);
}

absl::Status Model::RunHeadOf(Pass pass, int32_t rows, bool questions, int part) {
  const WeightViews& weights = *parts_.weights;
  float* const logits = context_.act.logits_part[part];
  DSV4_RETURN_IF_ERROR(pass == Pass::kMain
                           ? RunHead(context_, weights.hc_head, weights.norm, weights.head, rows,
                                     inputs_.head_rows, logits)
                           : drafter_->RunHead(context_, rows, inputs_.head_rows, logits));
  // The answers are taken from the first rank.
  if (!questions || parts_.device->host_memory() || parts_.rank > 0) return absl::OkStatus();
  return context_.Run(Candidates(rows));
}

TokenCandidatesParams Model::Candidates(int32_t rows) {
  return {.rows = rows,
          .vocab = parts_.config->vocab_size,
          .queries = inputs_.queries,
          .logits = context_.act.logits,
          .lists = logits_.lists(),
          .chosen = chosen_};
}

}  // namespace dsv4
