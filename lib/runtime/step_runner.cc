// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/step_runner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/timeline.h"

namespace dsv4 {

StepRunner::StepRunner(ModelRanks* model, std::unique_ptr<Drafter> drafter, int64_t vocab)
    : model_(model),
      drafter_(std::move(drafter)),
      vocab_(static_cast<size_t>(vocab)),
      batch_(model->limits()),
      wants_(model->limits()),
      stop_([this] {
        (*between_layers_)();
        return std::any_of(items_.begin(), items_.end(), [](const StepItem& item) {
          return item.in_step && item.timeline->cancelled();
        });
      }) {}

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
  const auto start = std::chrono::steady_clock::now();
  DSV4_RETURN_IF_ERROR(Forward());
  if (batch_.empty()) return absl::OkStatus();
  if (drafter_ != nullptr) DSV4_RETURN_IF_ERROR(drafter_->AfterForward(batch_));
  DSV4_RETURN_IF_ERROR(Choose(for_each));
  DSV4_RETURN_IF_ERROR(PromptLogProbs());
  if (drafter_ == nullptr) return absl::OkStatus();
  Measured(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  DSV4_RETURN_IF_ERROR(drafter_->Draft(items_, for_each, &pace_, &finished_));
  for (StepItem& item : items_) {
    if (item.in_step) item.timeline->EndDrafts();
  }
  return absl::OkStatus();
}

void StepRunner::Measured(double seconds) {
  const bool decodes = std::all_of(items_.begin(), items_.end(), [](const StepItem& item) {
    return item.in_step && item.choose && item.rows == 1 &&
           item.timeline->prompt_log_prob_rows() == 0;
  });
  if (decodes) pace_.AddStep(batch_.rows().rows, seconds);
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
    wants_.Clear();
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
    const absl::Status status =
        model_->Forward(batch_.rows(), batch_.tokens(), &stop_, wants_.head());
    // Only stop_ makes it so: the step starts over without those that asked.
    if (absl::IsCancelled(status)) continue;
    if (status.ok()) RemoveCancelled();
    return status;
  }
}

absl::Status StepRunner::Choose(ForEach for_each) {
  if (wants_.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(wants_.Fetch(model_, &finished_));
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

void StepRunner::WantLogits(StepItem* item) {
  item->logits_row = -1;
  if (!item->choose && !item->timeline->LogitsWanted()) return;
  item->logits_row = wants_.size();
  const int32_t end = item->first_row + item->row_count;
  for (int32_t row = item->choose ? item->first_row : end - 1; row < end; ++row) {
    wants_.Add(row, item->choose ? item->timeline->Question(row - item->first_row) : std::nullopt);
  }
}

// In slices of what the head computes at once.
absl::Status StepRunner::PromptLogProbs() {
  for (StepItem& item : items_) {
    if (!item.in_step) continue;
    const int32_t first = item.timeline->first_prompt_log_prob_row();
    const int32_t end = first + item.timeline->prompt_log_prob_rows();
    for (int32_t row = first; row < end;) {
      const int32_t count = std::min(end - row, model_->limits().logit_rows);
      wants_.Clear();
      for (int32_t i = 0; i < count; ++i) wants_.Add(item.first_row + row + i);
      finished_ = false;
      DSV4_ASSIGN_OR_RETURN(const float* logits, model_->Logits(wants_.rows()));
      for (int32_t i = 0; i < count; ++i) {
        item.timeline->TakePromptLogProbs(row + i, RowOf(logits, i));
      }
      row += count;
    }
  }
  return absl::OkStatus();
}

}  // namespace dsv4
