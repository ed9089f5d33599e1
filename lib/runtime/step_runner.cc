// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/step_runner.h"

#include <algorithm>

#include "lib/base/contained.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/timeline.h"

namespace dsv4 {

StepRunner::StepRunner(ModelRanks* model, const KvCache& cache, int64_t vocab)
    : model_(model),
      mtp_(cache.shape().streams_bytes > 0),
      vocab_(static_cast<size_t>(vocab)),
      batch_(model->limits()),
      mtp_batch_(model->limits()),
      stop_([this] {
        (*between_layers_)();
        return std::any_of(items_.begin(), items_.end(), [](const StepItem& item) {
          return item.in_step && item.timeline->cancelled();
        });
      }) {
  const auto rows = static_cast<size_t>(model->limits().rows);
  rows_.reserve(rows);
  questions_.reserve(static_cast<size_t>(model->limits().logit_rows));
  saved_rows_.reserve(rows);
  saves_.reserve(rows);
  sources_.reserve(rows);
}

absl::Span<const float> StepRunner::RowOf(const float* logits, int32_t row) const {
  return {logits + static_cast<size_t>(row) * vocab_, vocab_};
}

void StepRunner::Run(absl::Span<StepItem> items, ForEach for_each,
                     absl::FunctionRef<void()> between_layers) {
  items_ = items;
  finished_ = false;
  between_layers_ = &between_layers;
  const absl::Status status = Contained([&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(Compute(for_each));
    return finished_ ? absl::OkStatus() : model_->Finish();
  });
  // What a device was given of a step that ends early reads the memory of the next one.
  if (!status.ok()) Contained([&] { return model_->Finish(); }).IgnoreError();
  for (StepItem& item : items_) {
    if (!item.in_step) continue;
    if (status.ok()) {
      item.timeline->Commit();
    } else {
      item.timeline->Abandon();
      item.status = status;
    }
  }
}

absl::Status StepRunner::Compute(ForEach for_each) {
  DSV4_RETURN_IF_ERROR(Forward());
  if (batch_.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(SaveStreams());
  DSV4_RETURN_IF_ERROR(Choose(for_each));
  DSV4_RETURN_IF_ERROR(PromptLogProbs());
  if (!mtp_) return absl::OkStatus();
  return Draft(for_each);
}

void StepRunner::RemoveCancelled() {
  for (StepItem& item : items_) {
    if (!item.status.ok() || !item.timeline->cancelled()) continue;
    if (item.in_step) item.timeline->Abandon();
    item.in_step = false;
    item.status = item.timeline->CancelledStatus();
  }
}

absl::Status StepRunner::Forward() {
  for (;;) {
    RemoveCancelled();
    batch_.Clear();
    WantNothing();
    for (StepItem& item : items_) {
      item.in_step = false;
      if (!item.status.ok()) continue;
      item.status = item.timeline->AddTo(&batch_, item.rows, item.choose);
      if (!item.status.ok()) continue;
      const SequenceRows& rows = batch_.sequence(batch_.sequence_count() - 1);
      item.in_step = true;
      item.first_row = rows.first_row;
      item.row_count = rows.rows;
      WantLogits(&item);
    }
    if (batch_.empty()) return absl::OkStatus();
    const absl::Status status = model_->Forward(batch_.rows(), batch_.tokens(), &stop_, Wanted());
    // Only stop_ makes it so: the step starts over without those that asked.
    if (absl::IsCancelled(status)) continue;
    if (status.ok()) RemoveCancelled();
    return status;
  }
}

// X of each saved state's row, into the state slot.
absl::Status StepRunner::SaveStreams() {
  if (!mtp_) return absl::OkStatus();
  saved_rows_.clear();
  saves_.clear();
  for (int32_t i = 0; i < batch_.sequence_count(); ++i) {
    const SequenceRows& sequence = batch_.sequence(i);
    for (const StateSave& save : absl::MakeConstSpan(sequence.saves, sequence.save_count)) {
      saved_rows_.push_back(sequence.first_row + save.row - 1);
      saves_.push_back(save.slot);
    }
  }
  return model_->SaveStreams(saved_rows_, saves_);
}

absl::Status StepRunner::Choose(ForEach for_each) {
  if (rows_.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(FetchWanted());
  LogitRows* const logits = &model_->logits();
  for_each([&](StepItem& item) {
    if (!item.in_step || item.logits_row < 0) return;
    item.status = Contained([&]() -> absl::Status {
      if (item.choose) return item.timeline->Choose(logits, item.logits_row);
      DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> row, logits->Row(item.logits_row));
      item.timeline->TakeLogits(row);
      return absl::OkStatus();
    });
  });
  return absl::OkStatus();
}

void StepRunner::WantNothing() {
  rows_.clear();
  questions_.clear();
}

void StepRunner::WantLogits(StepItem* item) {
  item->logits_row = -1;
  if (!item->choose && !item->timeline->LogitsWanted()) return;
  item->logits_row = static_cast<int32_t>(rows_.size());
  const int32_t end = item->first_row + item->row_count;
  for (int32_t row = item->choose ? item->first_row : end - 1; row < end; ++row) {
    Want(row, item->choose ? item->timeline->Question(row - item->first_row) : std::nullopt);
  }
}

void StepRunner::Want(int32_t row, const std::optional<LogitQuestion>& question) {
  if (question) {
    questions_.push_back(*question);
    questions_.back().row = static_cast<int32_t>(rows_.size());
  }
  rows_.push_back(row);
}

// One transfer for rows that follow each other.
absl::Status StepRunner::FetchWanted() {
  const auto fetch = [&](int32_t first, int32_t end) {
    return first < end ? model_->logits().Fetch(first, end - first) : absl::OkStatus();
  };
  if (!questions_.empty()) {
    DSV4_RETURN_IF_ERROR(model_->Finish());
    finished_ = true;
  }
  int32_t first = 0;
  for (const LogitQuestion& question : questions_) {
    DSV4_RETURN_IF_ERROR(fetch(first, question.row));
    first = question.row + 1;
  }
  return fetch(first, static_cast<int32_t>(rows_.size()));
}

// In slices of what the head computes at once.
absl::Status StepRunner::PromptLogProbs() {
  for (StepItem& item : items_) {
    if (!item.in_step) continue;
    const int32_t first = item.timeline->first_prompt_log_prob_row();
    const int32_t end = first + item.timeline->prompt_log_prob_rows();
    for (int32_t row = first; row < end;) {
      const int32_t count = std::min(end - row, model_->limits().logit_rows);
      WantNothing();
      for (int32_t i = 0; i < count; ++i) rows_.push_back(item.first_row + row + i);
      finished_ = false;
      DSV4_ASSIGN_OR_RETURN(const float* logits, model_->Logits(rows_));
      for (int32_t i = 0; i < count; ++i) {
        item.timeline->TakePromptLogProbs(row + i, RowOf(logits, i));
      }
      row += count;
    }
  }
  return absl::OkStatus();
}

// The rows up to each new end, and with drafts wanted the one at it, whose output is the first
// draft.
void StepRunner::AddMtpSlots() {
  for (StepItem& item : items_) {
    item.drafting = false;
    if (!item.in_step) continue;
    const Timeline& timeline = *item.timeline;
    const absl::Span<const int32_t> tokens = timeline.mtp_tokens();
    if (tokens.empty()) continue;
    const int64_t begin = timeline.kv().length(), first_slot = timeline.first_mtp_slot();
    mtp_batch_.AddMtp(timeline.kv(), tokens, first_slot);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t source = first_slot + static_cast<int64_t>(i) - 1;  // position
      sources_.push_back(source < begin ? StreamSource::OfSlot(timeline.kv().state_slot())
                                        : StreamSource::OfRow(static_cast<int32_t>(
                                              item.first_row + source - begin)));
    }
    item.draft_row = static_cast<int32_t>(sources_.size()) - 1;
    item.drafting = timeline.drafts_wanted() > 0;
  }
}

// Each pass after the first drafts one token for every item that wants more, from the block's own
// output.
absl::Status StepRunner::Draft(ForEach for_each) {
  mtp_batch_.Clear();
  sources_.clear();
  AddMtpSlots();
  for (int64_t draft = 0; !mtp_batch_.empty(); ++draft) {
    WantNothing();
    for (StepItem& item : items_) {
      if (!item.drafting) continue;
      item.logits_row = static_cast<int32_t>(rows_.size());
      Want(item.draft_row, item.timeline->DraftQuestion());
    }
    finished_ = false;
    DSV4_RETURN_IF_ERROR(
        model_->ForwardMtp(mtp_batch_.rows(), mtp_batch_.tokens(), sources_, Wanted()));
    if (rows_.empty()) break;
    DSV4_RETURN_IF_ERROR(FetchWanted());
    LogitRows* const logits = &model_->logits();
    for_each([&](StepItem& item) {
      if (!item.drafting) return;
      item.drafting = item.timeline->Draft(TokenLogits(logits, item.logits_row));
    });
    mtp_batch_.Clear();
    sources_.clear();
    for (StepItem& item : items_) {
      if (!item.drafting) continue;
      const Timeline& timeline = *item.timeline;
      mtp_batch_.AddMtp(timeline.kv(), timeline.last_draft(), timeline.new_length() + draft + 1);
      sources_.push_back(StreamSource::OfRow(item.draft_row));
      item.draft_row = static_cast<int32_t>(sources_.size()) - 1;
    }
  }
  for (StepItem& item : items_) {
    if (item.in_step) item.timeline->EndDrafts();
  }
  return absl::OkStatus();
}

}  // namespace dsv4
