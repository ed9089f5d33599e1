// SPDX-License-Identifier: Apache-2.0
#include "lib/model/draft_passes.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

DraftPasses::DraftPasses(RunningPass* pass)
    : pass_(*pass),
      parts_(pass->parts),
      limits_(pass->limits),
      context_(pass->context),
      blocks_(DraftBlocks::Of(
          {.config = parts_.config,
           .weights = parts_.weights,
           .layers = parts_.layers.subspan(static_cast<size_t>(parts_.config->num_hidden_layers)),
           .shards = parts_.shards,
           .rank = parts_.rank})),
      chain_inputs_(chains() ? chain_passes() : 0),
      positions_(static_cast<size_t>(limits_.rows)),
      copy_from_(positions_.size()),
      copy_to_(positions_.size()) {}

// Tokens are chosen on the first rank; the others would not have them for further passes.
bool DraftPasses::chains() const {
  return !parts_.device->host_memory() && (blocks_->follows() || parts_.shards->ranks == 1);
}

// A drafter whose logits follow tokens drafts in one pass.
size_t DraftPasses::chain_passes() const {
  return blocks_->follows() ? 1 : static_cast<size_t>(std::max(limits_.drafts, 1));
}

// The shape for a drafter of blocks has as many sequences as rows have room for; for other
// drafters, sequences of as many rows as a step accepts, while that is one sequence.
StepUpload::Shape DraftPasses::ChainShape(const StepUpload::Shape& shape) const {
  StepUpload::Shape first = shape;
  if (blocks_->follows()) {
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

StepUpload::Shape DraftPasses::ChainShape(const StepUpload::Shape& first, size_t pass) {
  if (pass == 0) return first;
  return {first.sequences, first.sequences, first.head_rows};
}

absl::Status DraftPasses::SetChainPass(const DraftChain& chain, size_t pass, StepUpload* upload,
                                       const StepUpload::Shape& shape) {
  PassInputs inputs;
  const LogitRequests none;
  const LogitRequests* head = &none;
  following_ = pass + 1 == chain.passes.size() ? chain.following : FollowingDrafts{};
  if (pass < chain.passes.size()) {
    const DraftPass& from = chain.passes[pass];
    DSV4_RETURN_IF_ERROR(pass_.ExpectHead(*from.head));
    DSV4_ASSIGN_OR_RETURN(inputs, Inputs(from.step, from.tokens, from.sources));
    SetSources(from.sources, shape.rows, &inputs);
    head = from.head;
    pass_.logits.Change({}, head->questions);
  } else {
    SetSources({}, shape.rows, &inputs);
  }
  pass_.logits.Change({}, following_.questions);
  DSV4_RETURN_IF_ERROR(pass_.Set(upload, shape, *head, inputs, &following_, pass == 0));
  chain_inputs_[pass] = pass_.inputs;
  return absl::OkStatus();
}

absl::Status DraftPasses::RunChainPass(size_t pass, int32_t head_rows) {
  pass_.inputs = chain_inputs_[pass];
  context_.step = pass_.inputs.step;
  context_.tokens = pass_.inputs.tokens;
  DSV4_RETURN_IF_ERROR(Run());
  DSV4_RETURN_IF_ERROR(
      blocks_->RunHead(context_, head_rows, pass_.inputs.head_rows, pass_.NextLogitsPart()));
  if (!blocks_->follows()) return context_.Run(pass_.Candidates(head_rows));
  // The first rank has all logits, and chooses for all ranks.
  for (int32_t draft = 0; draft < following_.drafts && parts_.rank == 0; ++draft) {
    const int64_t at = int64_t{draft} * following_.sequences;
    DSV4_RETURN_IF_ERROR(blocks_->Follow(context_, following_.sequences, following_.rows + at,
                                         following_.tokens + at, pass_.logits.confidences()));
    pass_.inputs.queries = following_.queries + at;
    DSV4_RETURN_IF_ERROR(context_.Run(pass_.Candidates(following_.sequences)));
  }
  return absl::OkStatus();
}

absl::Status DraftPasses::RunChain(const DraftChain& chain) {
  for (size_t pass = 0; pass < chain.passes.size(); ++pass) {
    const DraftPass& from = chain.passes[pass];
    const int32_t head_rows = from.head->size();
    DSV4_RETURN_IF_ERROR(SetChainPass(
        chain, pass, &pass_.upload,
        {from.step.rows, from.step.sequence_count, head_rows, chain.following.drafts}));
    DSV4_RETURN_IF_ERROR(RunChainPass(pass, head_rows));
  }
  return absl::OkStatus();
}

absl::Status DraftPasses::ReadHidden(int32_t row, absl::Span<std::byte> to) {
  return parts_.device->Download(to.data(), blocks_->HiddenOf(row),
                                 static_cast<int64_t>(to.size()));
}

absl::StatusOr<PassInputs> DraftPasses::Inputs(const StepRows& step, const int32_t* tokens,
                                               absl::Span<const StreamSource> sources) {
  const int32_t expected = blocks_->sources() == nullptr ? 0 : step.rows;
  if (step.rows > limits_.rows || sources.size() != static_cast<size_t>(expected)) {
    return InvalidArgument("a draft pass of ", step.rows, " rows with ", sources.size(),
                           " sources; the limit is ", limits_.rows);
  }
  const int64_t shift = blocks_->slot_shift();
  for (int32_t row = 0; row < step.rows; ++row) {
    if (step.positions[row] < shift) {
      return InvalidArgument("draft slot ", step.positions[row], "; the first is ", shift);
    }
    positions_[row] = step.positions[row] - shift;
  }
  return PassInputs{.step = step, .tokens = tokens, .rope_positions = positions_.data()};
}

// Rows of padding are anything.
void DraftPasses::SetSources(absl::Span<const StreamSource> sources, int32_t rows,
                             PassInputs* inputs) {
  std::byte* const to = blocks_->sources();
  if (to == nullptr) return;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    copy_to_[row] = to + static_cast<int64_t>(row) * pass_.streams_row_bytes();
    const StreamSource source =
        row < sources.size() ? sources[row] : StreamSource::OfRow(static_cast<int32_t>(row));
    copy_from_[row] =
        source.row >= 0 ? pass_.StreamsOfRow(source.row) : parts_.streams.Slot(source.slot);
  }
  inputs->from = copy_from_.data();
  inputs->to = copy_to_.data();
}

absl::Status DraftPasses::Begin() {
  DSV4_RETURN_IF_ERROR(pass_.ComputeRope());
  if (blocks_->sources() != nullptr) {
    DSV4_RETURN_IF_ERROR(
        context_.Run(pass_.CopyParams(context_.step.rows, pass_.inputs.from, pass_.inputs.to)));
  }
  return blocks_->Begin(context_);
}

absl::Status DraftPasses::Run() {
  DSV4_RETURN_IF_ERROR(Begin());
  for (int64_t block = 0; block < blocks_->blocks(); ++block) {
    DSV4_RETURN_IF_ERROR(RunBlock(block));
  }
  return absl::OkStatus();
}

absl::Status DraftPasses::Follow(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                                 absl::Span<const LogitQuestion> questions) {
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
  DSV4_RETURN_IF_ERROR(pass_.upload.Follow(rows, tokens, questions, &pass_.inputs));
  pass_.logits.Change(rows, questions);
  DSV4_RETURN_IF_ERROR(blocks_->Follow(context_, count, pass_.inputs.head_rows,
                                       pass_.inputs.previous, pass_.logits.confidences()));
  if (questions.empty() || parts_.device->host_memory()) return absl::OkStatus();
  return context_.Run(pass_.Candidates(limits_.logit_rows));
}

}  // namespace dsv4
