// SPDX-License-Identifier: Apache-2.0
// Drafts by a DSpark drafter, whose context rows every forward pass fills: one pass over a block of
// rows for each timeline that wants drafts, then token after token, each by the logits of its row
// and what the token before it says of them.
#include <algorithm>
#include <cstddef>
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
        wants_(model->limits()) {}

  absl::Status Draft(absl::Span<StepItem> items, ForEach for_each, bool* finished) override {
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
    DSV4_RETURN_IF_ERROR(wants_.Fetch(model_, finished));
    LogitRows* const logits = &model_->logits();
    for (int32_t draft = 0; draft < most; ++draft) {
      for (StepItem& item : items) {
        if (!item.drafting) continue;
        const int32_t previous = item.timeline->all_tokens().back();
        DSV4_RETURN_IF_ERROR(model_->FollowDraft(item.logits_row + draft, previous).status());
      }
      for_each([&](StepItem& item) {
        if (!item.drafting) return;
        item.drafting = item.timeline->Draft(TokenLogits(logits, item.logits_row + draft));
      });
    }
    return absl::OkStatus();
  }

 private:
  ModelRanks* model_;
  const int64_t context_;       // tokens
  std::vector<int32_t> block_;  // the newest token, and noise
  StepBatch batch_;
  LogitWants wants_;
};

}  // namespace

std::unique_ptr<Drafter> MakeDsparkDrafter(ModelRanks* model, const DsparkConfig& config,
                                           int64_t context) {
  return std::make_unique<DsparkDrafter>(model, config, context);
}

}  // namespace dsv4
