// SPDX-License-Identifier: Apache-2.0
// Drafts by a DSpark drafter, whose context rows every forward pass fills: one pass over a block of
// rows for each timeline that wants drafts, then token after token, each by the logits of its row
// and what the token before it says of them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/runtime/drafter.h"
#include "lib/runtime/logit_wants.h"
#include "lib/runtime/timeline.h"

namespace dsv4 {
namespace {

class DsparkDrafter final : public Drafter {
 public:
  DsparkDrafter(ModelRanks* model, const DsparkConfig& config, int64_t context)
      : model_(model),
        context_(context),
        block_(static_cast<size_t>(config.block_size), static_cast<int32_t>(config.noise_token_id)),
        batch_(model->limits()),
        wants_(model->limits()) {
    const auto sessions = static_cast<size_t>(model->limits().sequences);
    rows_.reserve(sessions);
    previous_.reserve(sessions);
    questions_.reserve(sessions);
  }

  absl::Status Draft(absl::Span<StepItem> items, ForEach for_each, DraftPace* pace,
                     bool* finished) override {
    const auto sessions =
        static_cast<int32_t>(std::count_if(items.begin(), items.end(), [](const StepItem& item) {
          return item.in_step && item.timeline->drafts_wanted() > 0;
        }));
    const auto start = std::chrono::steady_clock::now();
    batch_.Clear();
    wants_.Clear();
    int32_t most = 0;
    for (StepItem& item : items) {
      item.drafting = false;
      if (!item.in_step) continue;
      const Timeline& timeline = *item.timeline;
      const int32_t wanted = timeline.drafts_wanted();
      const int64_t begin = timeline.new_length();
      if (wanted == 0 || begin + static_cast<int64_t>(block_.size()) > context_) continue;
      const absl::Span<const double> right = timeline.speculation().right();
      if (!pace->PassPays(sessions, right.subspan(0, static_cast<size_t>(wanted)))) continue;
      item.drafts = pace->Begin(sessions);
      block_[0] = timeline.all_tokens()[static_cast<size_t>(begin)];
      item.draft_row = batch_.row_count();
      item.logits_row = wants_.size();
      batch_.AddBlock(timeline.kv(), block_, begin);
      for (int32_t row = 0; row < wanted; ++row) wants_.Add(item.draft_row + row);
      item.drafting = true;
      most = std::max(most, wanted);
    }
    if (batch_.empty()) return absl::OkStatus();
    *finished = false;
    DSV4_RETURN_IF_ERROR(model_->ForwardDraft(batch_.rows(), batch_.tokens(), {}, wants_.head()));
    LogitRows* const logits = &model_->logits();
    for (int32_t draft = 0; draft < most; ++draft) {
      rows_.clear();
      previous_.clear();
      questions_.clear();
      for (StepItem& item : items) {
        if (!item.drafting) continue;
        rows_.push_back(item.logits_row + draft);
        previous_.push_back(item.timeline->all_tokens().back());
        if (std::optional<LogitQuestion> question = item.timeline->DraftQuestion()) {
          question->row = rows_.back();
          questions_.push_back(*question);
        }
      }
      if (rows_.empty()) break;
      *finished = false;
      DSV4_RETURN_IF_ERROR(model_->FollowDrafts(rows_, previous_, questions_));
      DSV4_RETURN_IF_ERROR(model_->Finish());
      *finished = true;
      for (StepItem& item : items) {
        if (!item.drafting) continue;
        const double sure = model_->Confidence(item.logits_row + draft);
        // It depends on the token before the draft alone: leaving the draft out changes no odds.
        item.drafting = item.drafts.Pays(1 / (1 + std::exp(-sure)));
      }
      for_each([&](StepItem& item) {
        if (!item.drafting) return;
        item.drafting = item.timeline->Draft(TokenLogits(logits, item.logits_row + draft));
      });
    }
    pace->AddPass(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return absl::OkStatus();
  }

 private:
  ModelRanks* model_;
  const int64_t context_;       // tokens
  std::vector<int32_t> block_;  // the newest token, and noise
  StepBatch batch_;
  LogitWants wants_;
  // Rows of the next drafts, the tokens before them, and what is asked about them.
  std::vector<int32_t> rows_, previous_;
  std::vector<LogitQuestion> questions_;
};

}  // namespace

std::unique_ptr<Drafter> MakeDsparkDrafter(ModelRanks* model, const DsparkConfig& config,
                                           int64_t context) {
  return std::make_unique<DsparkDrafter>(model, config, context);
}

}  // namespace dsv4
