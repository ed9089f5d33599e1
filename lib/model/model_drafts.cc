// SPDX-License-Identifier: Apache-2.0
// The passes of a Model's drafter: single passes, and chains of passes. Each pass of a chain uses
// the tokens that the pass before it chose.
#include <algorithm>

#include "kernels/op/dense.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/model.h"

namespace dsv4 {

// A drafter whose logits follow tokens drafts in one pass.
size_t Model::ChainPasses() const {
  return drafter_->follows() ? 1 : static_cast<size_t>(std::max(limits_.drafts, 1));
}

// Of a drafter of blocks, as many sequences as rows have room for. Of the others, sequences of as
// many rows as a step accepts, while that is one sequence.
StepUpload::Shape Model::ChainShape(const StepUpload::Shape& shape) const {
  StepUpload::Shape first = shape;
  if (drafter_->follows()) {
    const auto block = static_cast<int32_t>(parts_.config->dspark.block_size);
    first.sequences = std::clamp(shape.rows / block, 1, shape.sequences);
    first.drafts = limits_.drafts;
    first.head_rows = std::min(first.sequences * limits_.drafts, limits_.logit_rows);
  } else {
    first.sequences = shape.rows <= limits_.drafts + 1 ? 1 : shape.sequences;
    first.head_rows = std::min(first.sequences, limits_.logit_rows);
  }
  return first;
}

StepUpload::Shape Model::ChainShape(const StepUpload::Shape& first, size_t pass) const {
  if (pass == 0) return first;
  return {first.sequences, first.sequences, first.head_rows};
}

absl::Status Model::SetChainPass(const DraftChain& chain, size_t pass, StepUpload* upload,
                                 const StepUpload::Shape& shape) {
  PassInputs inputs;
  HeadRows head;
  following_ = pass + 1 == chain.passes.size() ? chain.following : FollowingDrafts{};
  if (pass < chain.passes.size()) {
    const DraftPass& from = chain.passes[pass];
    DSV4_RETURN_IF_ERROR(ExpectHead(from.head));
    DSV4_ASSIGN_OR_RETURN(inputs, DraftInputs(from.step, from.tokens, from.sources));
    SetSources(from.sources, shape.rows, &inputs);
    head = from.head;
    logits_.Change({}, head.questions);
  } else {
    SetSources({}, shape.rows, &inputs);
  }
  logits_.Change({}, following_.questions);
  DSV4_RETURN_IF_ERROR(SetPass(upload, shape, head, inputs, &following_, pass == 0));
  chain_inputs_[pass] = inputs_;
  return absl::OkStatus();
}

absl::Status Model::RunChainPass(size_t pass, int32_t head_rows) {
  inputs_ = chain_inputs_[pass];
  context_.step = inputs_.step;
  context_.tokens = inputs_.tokens;
  DSV4_RETURN_IF_ERROR(RunDraft());
  DSV4_RETURN_IF_ERROR(drafter_->RunHead(context_, head_rows, inputs_.head_rows,
                                         context_.act.logits_part[++heads_ % 2]));
  if (!drafter_->follows()) return context_.Run(Candidates(head_rows));
  // The first rank has all logits, and chooses for all ranks.
  for (int32_t draft = 0; draft < following_.drafts && parts_.rank == 0; ++draft) {
    const int64_t at = int64_t{draft} * following_.sequences;
    DSV4_RETURN_IF_ERROR(drafter_->Follow(context_, following_.sequences, following_.rows + at,
                                          following_.tokens + at, logits_.confidences()));
    inputs_.queries = following_.queries + at;
    DSV4_RETURN_IF_ERROR(context_.Run(Candidates(following_.sequences)));
  }
  return absl::OkStatus();
}

absl::Status Model::ForwardDrafts(const DraftChain& chain) {
  const size_t passes = chain.passes.size();
  if (!chains() || passes == 0 || passes > ChainPasses() ||
      chain.following.drafts > limits_.drafts) {
    return InvalidArgument("a chain of ", passes, " passes and ", chain.following.drafts,
                           " drafts; the limit is ", limits_.drafts);
  }
  const DeviceScope scope(parts_.device);
  const StepRows& step = chain.passes[0].step;
  const RecordedStep* const recorded = Recorded(step, &RecordedStep::chain_shape);
  if (recorded == nullptr) {
    BeginFetches();
    return EndFetches(RunChain(chain));
  }
  for (size_t pass = 0; pass < ChainPasses(); ++pass) {
    if (ChainFetched(pass).launched) DSV4_RETURN_IF_ERROR(Synchronize());
  }
  if (parts_.communicator != nullptr) DSV4_RETURN_IF_ERROR(parts_.communicator->Check());
  for (size_t pass = 0; pass < ChainPasses(); ++pass) {
    DSV4_RETURN_IF_ERROR(SetChainPass(chain, pass, &ChainFetched(pass).upload,
                                      ChainShape(recorded->chain_shape, pass)));
    ChainFetched(pass).launched = true;
  }
  recorded->chain->Launch();
  return absl::OkStatus();
}

absl::Status Model::RunChain(const DraftChain& chain) {
  for (size_t pass = 0; pass < chain.passes.size(); ++pass) {
    const DraftPass& from = chain.passes[pass];
    const auto head_rows = static_cast<int32_t>(from.head.rows.size());
    DSV4_RETURN_IF_ERROR(SetChainPass(
        chain, pass, &upload_,
        {from.step.rows, from.step.sequence_count, head_rows, chain.following.drafts}));
    DSV4_RETURN_IF_ERROR(RunChainPass(pass, head_rows));
  }
  return absl::OkStatus();
}

absl::Status Model::ReadDraftHidden(int32_t row, absl::Span<std::byte> to) {
  return parts_.device->Download(to.data(), drafter_->HiddenOf(row),
                                 static_cast<int64_t>(to.size()));
}

absl::StatusOr<PassInputs> Model::DraftInputs(const StepRows& step, const int32_t* tokens,
                                              absl::Span<const StreamSource> sources) {
  if (drafter_ == nullptr) return Internal("the drafter was not planned for");
  const int32_t expected = drafter_->sources() == nullptr ? 0 : step.rows;
  if (step.rows > limits_.rows || sources.size() != static_cast<size_t>(expected)) {
    return InvalidArgument("a draft pass of ", step.rows, " rows with ", sources.size(),
                           " sources; the limit is ", limits_.rows);
  }
  const int64_t shift = drafter_->slot_shift();
  for (int32_t row = 0; row < step.rows; ++row) {
    if (step.positions[row] < shift) {
      return InvalidArgument("draft slot ", step.positions[row], "; the first is ", shift);
    }
    draft_positions_[row] = step.positions[row] - shift;
  }
  return PassInputs{.step = step, .tokens = tokens, .rope_positions = draft_positions_.data()};
}

absl::Status Model::ForwardDraft(const StepRows& step, const int32_t* tokens,
                                 absl::Span<const StreamSource> sources, const HeadRows& head) {
  const DeviceScope scope(parts_.device);
  DSV4_ASSIGN_OR_RETURN(PassInputs inputs, DraftInputs(step, tokens, sources));
  DSV4_RETURN_IF_ERROR(ExpectHead(head));
  if (const RecordedStep* recorded = Recorded(step)) {
    SetSources(sources, recorded->shape.rows, &inputs);
    return Replay(Pass::kDraft, *recorded, head, inputs);
  }
  SetSources(sources, step.rows, &inputs);
  DSV4_RETURN_IF_ERROR(SetPass(inputs));
  BeginFetches();
  const absl::Status status = RunDraft();
  return EndFetches(status.ok() ? LaunchHead(Pass::kDraft, head) : status);
}

// Rows of padding are anything.
void Model::SetSources(absl::Span<const StreamSource> sources, int32_t rows, PassInputs* inputs) {
  std::byte* const to = drafter_->sources();
  if (to == nullptr) return;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    copy_to_[row] = to + static_cast<int64_t>(row) * streams_row_bytes();
    const StreamSource source =
        row < sources.size() ? sources[row] : StreamSource::OfRow(static_cast<int32_t>(row));
    copy_from_[row] = source.row >= 0 ? StreamsOfRow(source.row) : parts_.streams.Slot(source.slot);
  }
  inputs->from = copy_from_.data();
  inputs->to = copy_to_.data();
}

absl::Status Model::BeginDraft(const StepRows& step, const int32_t* tokens,
                               absl::Span<const StreamSource> sources) {
  DSV4_ASSIGN_OR_RETURN(PassInputs inputs, DraftInputs(step, tokens, sources));
  const DeviceScope scope(parts_.device);
  SetSources(sources, step.rows, &inputs);
  DSV4_RETURN_IF_ERROR(SetPass(inputs));
  BeginFetches();
  return BeginDraft();
}

absl::Status Model::BeginDraft() {
  DSV4_RETURN_IF_ERROR(ComputeRope());
  if (drafter_->sources() != nullptr) {
    DSV4_RETURN_IF_ERROR(context_.Run(CopyParams(context_.step.rows, inputs_.from, inputs_.to)));
  }
  return drafter_->Begin(context_);
}

absl::Status Model::RunDraftBlock(int64_t block) {
  const DeviceScope scope(parts_.device);
  return drafter_->RunBlock(context_, block);
}

absl::Status Model::RunDraft() {
  DSV4_RETURN_IF_ERROR(BeginDraft());
  for (int64_t block = 0; block < drafter_->blocks(); ++block) {
    DSV4_RETURN_IF_ERROR(RunDraftBlock(block));
  }
  return absl::OkStatus();
}

absl::StatusOr<const float*> Model::DraftLogits(absl::Span<const int32_t> row_of) {
  if (drafter_ == nullptr) return Internal("the drafter was not planned for");
  return LaunchAndFetch(Pass::kDraft, row_of);
}

absl::Status Model::FollowDrafts(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                                 absl::Span<const LogitQuestion> questions) {
  if (drafter_ == nullptr) return Internal("the drafter was not planned for");
  const DeviceScope scope(parts_.device);
  const auto count = static_cast<int32_t>(rows.size());
  if (count > limits_.logit_rows || rows.size() != tokens.size()) {
    return InvalidArgument("drafts in ", count, " rows after ", tokens.size(),
                           " tokens; the limit is ", limits_.logit_rows);
  }
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (rows[at] < 0 || rows[at] >= limits_.logit_rows) {
      return InvalidArgument("row ", rows[at], " of drafted logits; the limit is ",
                             limits_.logit_rows);
    }
    if (tokens[at] < 0 || tokens[at] >= parts_.config->vocab_size) {
      return InvalidArgument("a draft after token ", tokens[at], "; the vocabulary has ",
                             parts_.config->vocab_size);
    }
  }
  // The first rank has all logits, and chooses for all ranks.
  if (count == 0 || parts_.rank > 0) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(upload_.Follow(rows, tokens, questions, &inputs_));
  logits_.Change(rows, questions);
  DSV4_RETURN_IF_ERROR(drafter_->Follow(context_, count, inputs_.head_rows, inputs_.previous,
                                        logits_.confidences()));
  if (questions.empty() || parts_.device->host_memory()) return absl::OkStatus();
  return context_.Run(Candidates(limits_.logit_rows));
}

}  // namespace dsv4
