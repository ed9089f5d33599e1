// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model.h"

#include "kernels/op/dense.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// Numbers of Device::Mark; ExpertFetcher has those before.
constexpr int kFirstPaceMark = 2, kPaceMarks = 2;
static_assert(kFirstPaceMark + kPaceMarks <= Device::kMarks);

}  // namespace

Model::Model(const Parts& parts, const StepLimits& limits)
    : pass_(parts, limits),
      parts_(pass_.parts),
      context_(pass_.context),
      drafts_(parts.drafts ? std::make_unique<DraftPasses>(&pass_) : nullptr),
      recorded_(&pass_, drafts_.get(),
                {.layers =
                     [this](PassKind kind) {
                       return kind == PassKind::kMain ? RunLayers(nullptr) : drafts_->Run();
                     },
                 .head =
                     [this](PassKind kind, int32_t rows) {
                       return RunHeadOf(kind, rows, true, context_.act.logits_part[0]);
                     }}) {
  context_.tap_memory = &tap_memory_;
}

absl::StatusOr<int64_t> Model::PlaceMemory(std::byte* memory) {
  const auto at = [memory](int64_t bytes) { return memory == nullptr ? nullptr : memory + bytes; };
  int64_t bytes = PlanActivations(
      *parts_.config, pass_.limits, *parts_.shards, parts_.rank, parts_.experts->takes_waves(),
      context_.act_dtype(), parts_.dispatch->workspace_bytes(),
      parts_.dispatch->workspace_bytes(StreamRole::kSide), memory, &context_.act);
  if (drafts_ != nullptr) {
    bytes += drafts_->blocks().Place(pass_.limits, context_.act_dtype(), at(bytes));
  }
  DSV4_ASSIGN_OR_RETURN(const int64_t inputs, pass_.PlaceInputs(at(bytes)));
  bytes += inputs;
  if (chains()) {
    context_.chosen = pass_.chosen = reinterpret_cast<int32_t*>(at(bytes));
    bytes += RoundUp<int64_t>(pass_.limits.logit_rows * int64_t{sizeof(int32_t)}, 64);
  }
  if (parts_.experts->reads_disk() && parts_.shards->ranks > 1) {
    if (memory != nullptr) read_failures_ = StatusExchange(parts_.device, at(bytes));
    bytes += StatusExchange::DeviceBytes(parts_.shards->ranks);
  }
  DSV4_ASSIGN_OR_RETURN(const int64_t recorded, recorded_.PlaceInputs(at(bytes)));
  return bytes + recorded;
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
  if (parts.device->TakeWaitingBlocks()) context.launch.marked = context.act.marked;
  context.side.workspace = context.act.side_workspace;
  context.step.rope = context.act.rope;
  DSV4_RETURN_IF_ERROR(model->pass_.logits.Place(parts.device, limits.logit_rows,
                                                 parts.config->vocab_size, context.act.logits));
  model->copy_from_.resize(static_cast<size_t>(limits.rows));
  model->copy_to_.resize(model->copy_from_.size());
  RecordedPasses& recorded = model->recorded_;
  parts.experts->set_recorded_rows(recorded.recorded_rows());
  DSV4_RETURN_IF_ERROR(recorded.Record());
  return model;
}

absl::Status Model::RecordAgain() {
  const DeviceScope scope(parts_.device);
  return recorded_.Record();
}

absl::Status Model::Plan() {
  context_.planning = true;
  context_.step = {.rows = pass_.limits.rows,
                   .sequence_count = pass_.limits.sequences,
                   .max_position = pass_.limits.positions};
  DSV4_RETURN_IF_ERROR(context_.Run(RopeTableParams{.rows = pass_.limits.rows}));
  DSV4_RETURN_IF_ERROR(Embed());
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
    DSV4_RETURN_IF_ERROR(TapLayer(layer));
  }
  DSV4_RETURN_IF_ERROR(RunHeadOf(PassKind::kMain, pass_.limits.logit_rows, true, nullptr));
  DSV4_RETURN_IF_ERROR(context_.Run(pass_.CopyParams(pass_.limits.rows, nullptr, nullptr)));
  if (drafts_ != nullptr) {
    DraftBlocks& blocks = drafts_->blocks();
    DSV4_RETURN_IF_ERROR(drafts_->Run());
    DSV4_RETURN_IF_ERROR(RunHeadOf(PassKind::kDraft, pass_.limits.logit_rows, true, nullptr));
    if (blocks.follows()) {
      DSV4_RETURN_IF_ERROR(
          blocks.Follow(context_, pass_.limits.logit_rows, nullptr, nullptr, nullptr));
    }
  }
  context_.planning = false;
  return absl::OkStatus();
}

absl::Status Model::Begin(const StepRows& step, const int32_t* tokens) {
  const DeviceScope scope(parts_.device);
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginPass());
  DSV4_RETURN_IF_ERROR(
      pass_.Set({.step = step, .tokens = tokens, .rope_positions = step.positions}));
  return pass_.ComputeRope();
}

absl::Status Model::SplitExperts() {
  Activations& act = context_.act;
  if (act.products != nullptr) return absl::OkStatus();
  const int64_t elements = int64_t{pass_.limits.rows} * (parts_.config->num_experts_per_tok + 1) *
                           parts_.config->moe_intermediate_size;
  DSV4_ASSIGN_OR_RETURN(
      products_, parts_.device->Allocate(elements * DTypeBytes(activation_dtype()), "products"));
  act.products = act.products_part = products_.data();
  return absl::OkStatus();
}

absl::Status Model::EndPass(const absl::Status& status) {
  return parts_.experts->EndPass(status, [this](const absl::Status& failure) {
    return parts_.communicator == nullptr ? failure
                                          : read_failures_.Exchange(parts_.communicator, failure);
  });
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
  if (drafts_ == nullptr) return absl::OkStatus();
  const DeviceScope scope(parts_.device);
  DraftBlocks& blocks = drafts_->blocks();
  DSV4_RETURN_IF_ERROR(blocks.AfterLayer(context_, layer));
  return layer + 1 == parts_.config->num_hidden_layers ? blocks.AfterLayers(context_)
                                                       : absl::OkStatus();
}

absl::Status Model::Stopped(const std::function<bool()>* stop, int64_t layer) const {
  if (stop == nullptr || !(*stop)()) return absl::OkStatus();
  return Cancelled("stopped before layer ", layer, " of ", parts_.config->num_hidden_layers);
}

// Layers of long prompts take long: a device that runs behind its launches has at most two of them
// queued, so that a pass that stops ends soon. Where the driver ends what runs for too long, be it
// several launches: one.
absl::Status Model::Pace(int64_t layer) {
  const int64_t oldest = parts_.device->limits_kernels() ? layer : layer + 1;
  DSV4_RETURN_IF_ERROR(parts_.device->Mark(kFirstPaceMark + static_cast<int>(layer % kPaceMarks)));
  return parts_.device->Await(kFirstPaceMark + static_cast<int>(oldest % kPaceMarks));
}

absl::Status Model::RunLayers(const std::function<bool()>* stop) {
  DSV4_RETURN_IF_ERROR(pass_.ComputeRope());
  DSV4_RETURN_IF_ERROR(Embed());
  const bool paces = stop != nullptr && (context_.step.rows > recorded_.limits().rows ||
                                         parts_.device->limits_kernels());
  for (int64_t layer = 0; layer < parts_.config->num_hidden_layers; ++layer) {
    if (paces) DSV4_RETURN_IF_ERROR(Pace(layer));
    DSV4_RETURN_IF_ERROR(Stopped(stop, layer));
    DSV4_RETURN_IF_ERROR(RunLayer(layer));
    DSV4_RETURN_IF_ERROR(TapLayer(layer));
  }
  return absl::OkStatus();
}

absl::Status Model::Forward(const StepRows& step, const int32_t* tokens,
                            const std::function<bool()>* stop, const LogitRequests& head) {
  const DeviceScope scope(parts_.device);
  DSV4_RETURN_IF_ERROR(pass_.ExpectHead(head));
  const PassInputs inputs{.step = step, .tokens = tokens, .rope_positions = step.positions};
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginStep());
  if (const RecordedPasses::Step* recorded = recorded_.Find(step)) {
    DSV4_RETURN_IF_ERROR(Stopped(stop, 0));
    return recorded_.Launch(PassKind::kMain, *recorded, head, inputs);
  }
  DSV4_RETURN_IF_ERROR(pass_.Set(inputs));
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginPass({tokens, static_cast<size_t>(step.rows)}));
  const absl::Status status = RunLayers(stop);
  return EndPass(status.ok() ? LaunchHead(PassKind::kMain, head) : status);
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
    copy_from_[i] = pass_.StreamsOfRow(rows[i]);
    copy_to_[i] = parts_.streams.Slot(slots[i]);
  }
  return CopyStreams(static_cast<int32_t>(rows.size()));
}

absl::Status Model::CopyStreams(int32_t rows) {
  const DeviceScope scope(parts_.device);
  const std::byte* const* from = copy_from_.data();
  std::byte* const* to = copy_to_.data();
  DSV4_RETURN_IF_ERROR(pass_.upload.Pointers(rows, &from, &to));
  return context_.Run(pass_.CopyParams(rows, from, to));
}

absl::Status Model::ReadStreams(absl::Span<std::byte> to) {
  DSV4_RETURN_IF_ERROR(pass_.AwaitExchanges());
  return parts_.device->Download(to.data(), static_cast<const std::byte*>(context_.act.streams),
                                 static_cast<int64_t>(to.size()));
}

absl::Status Model::WriteStreams(absl::Span<const std::byte> from) {
  return parts_.device->Upload(static_cast<std::byte*>(context_.act.streams), from.data(),
                               static_cast<int64_t>(from.size()));
}

absl::StatusOr<const float*> Model::Logits(absl::Span<const int32_t> row_of) {
  return LaunchAndFetch(PassKind::kMain, row_of);
}

absl::StatusOr<const float*> Model::LaunchAndFetch(PassKind kind,
                                                   absl::Span<const int32_t> row_of) {
  const DeviceScope scope(parts_.device);
  if (row_of.empty()) return InvalidArgument("logits of no rows");
  const LogitRequests head{.rows = {row_of.begin(), row_of.end()}};
  DSV4_RETURN_IF_ERROR(pass_.ExpectHead(head));
  DSV4_RETURN_IF_ERROR(LaunchHead(kind, head));
  DSV4_RETURN_IF_ERROR(pass_.AwaitExchanges());
  DSV4_RETURN_IF_ERROR(pass_.logits.Fetch(0, static_cast<int32_t>(row_of.size())));
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> first, pass_.logits.Row(0));
  return first.data();
}

absl::Status Model::LaunchHead(PassKind kind, const LogitRequests& head) {
  if (head.rows.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(pass_.upload.Head(head, &pass_.inputs));
  pass_.logits.Begin(head);
  // Recorded passes use the first part.
  return RunHeadOf(kind, static_cast<int32_t>(head.rows.size()), !head.questions.empty(),
                   pass_.NextLogitsPart());
}

absl::Status Model::RunHeadOf(PassKind kind, int32_t rows, bool questions, float* part) {
  const WeightViews& weights = *parts_.weights;
  DSV4_RETURN_IF_ERROR(
      kind == PassKind::kMain
          ? RunHead(context_, weights.hc_head, weights.norm, weights.head, rows,
                    pass_.inputs.head_rows, part)
          : drafts_->blocks().RunHead(context_, rows, pass_.inputs.head_rows, part));
  // The answers are taken from the first rank.
  if (!questions || parts_.device->host_memory() || parts_.rank > 0) return absl::OkStatus();
  return context_.Run(pass_.Candidates(rows));
}

absl::Status Model::ExpectDrafter() const {
  return drafts_ == nullptr ? Internal("the drafter was not planned for") : absl::OkStatus();
}

absl::Status Model::ForwardDraft(const StepRows& step, const int32_t* tokens,
                                 absl::Span<const StreamSource> sources,
                                 const LogitRequests& head) {
  DSV4_RETURN_IF_ERROR(ExpectDrafter());
  const DeviceScope scope(parts_.device);
  DSV4_ASSIGN_OR_RETURN(PassInputs inputs, drafts_->Inputs(step, tokens, sources));
  DSV4_RETURN_IF_ERROR(pass_.ExpectHead(head));
  if (const RecordedPasses::Step* recorded = recorded_.Find(step)) {
    drafts_->SetSources(sources, recorded->shape.rows, &inputs);
    return recorded_.Launch(PassKind::kDraft, *recorded, head, inputs);
  }
  drafts_->SetSources(sources, step.rows, &inputs);
  DSV4_RETURN_IF_ERROR(pass_.Set(inputs));
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginPass());
  const absl::Status status = drafts_->Run();
  return EndPass(status.ok() ? LaunchHead(PassKind::kDraft, head) : status);
}

absl::Status Model::ForwardDrafts(const DraftChain& chain) {
  const size_t passes = chain.passes.size();
  if (!chains() || passes == 0 || passes > drafts_->chain_passes() ||
      chain.following.drafts > pass_.limits.drafts) {
    return InvalidArgument("a chain of ", passes, " passes and ", chain.following.drafts,
                           " drafts; the limit is ", pass_.limits.drafts);
  }
  const DeviceScope scope(parts_.device);
  if (const RecordedPasses::Step* recorded =
          recorded_.Find(chain.passes[0].step, &RecordedPasses::Step::chain_shape)) {
    return recorded_.LaunchChain(*recorded, chain);
  }
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginPass());
  return EndPass(drafts_->RunChain(chain));
}

absl::Status Model::BeginDraft(const StepRows& step, const int32_t* tokens,
                               absl::Span<const StreamSource> sources) {
  DSV4_RETURN_IF_ERROR(ExpectDrafter());
  DSV4_ASSIGN_OR_RETURN(PassInputs inputs, drafts_->Inputs(step, tokens, sources));
  const DeviceScope scope(parts_.device);
  drafts_->SetSources(sources, step.rows, &inputs);
  DSV4_RETURN_IF_ERROR(pass_.Set(inputs));
  DSV4_RETURN_IF_ERROR(parts_.experts->BeginPass());
  return drafts_->Begin();
}

absl::Status Model::RunDraftBlock(int64_t block) {
  const DeviceScope scope(parts_.device);
  return drafts_->RunBlock(block);
}

absl::StatusOr<const float*> Model::DraftLogits(absl::Span<const int32_t> row_of) {
  DSV4_RETURN_IF_ERROR(ExpectDrafter());
  return LaunchAndFetch(PassKind::kDraft, row_of);
}

absl::Status Model::FollowDrafts(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                                 absl::Span<const LogitQuestion> questions) {
  DSV4_RETURN_IF_ERROR(ExpectDrafter());
  const DeviceScope scope(parts_.device);
  return drafts_->Follow(rows, tokens, questions);
}

}  // namespace dsv4
