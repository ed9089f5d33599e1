// SPDX-License-Identifier: Apache-2.0
// Drafts by an MTP block. Its rows, one slot later than the main ones, are made of tokens and the
// streams before them: those of the step's rows, or the streams kept in the state of the last row
// before it. Each pass after the first drafts one token more from the block's own output.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/runtime/drafter.h"
#include "lib/runtime/logit_wants.h"
#include "lib/runtime/timeline.h"

namespace dsv4 {
namespace {

class MtpDrafter final : public Drafter {
 public:
  explicit MtpDrafter(ModelRanks* model)
      : model_(model), batch_(model->limits()), wants_(model->limits()) {
    const auto rows = static_cast<size_t>(model->limits().rows);
    saved_rows_.reserve(rows);
    saves_.reserve(rows);
    sources_.reserve(rows);
    for (int32_t draft = 1; draft < model->limits().drafts; ++draft) later_.emplace_back(*model);
    passes_.reserve(later_.size() + 1);
  }

  // X of each saved state's row, into the state slot.
  absl::Status AfterForward(const StepBatch& batch) override {
    saved_rows_.clear();
    saves_.clear();
    for (int32_t i = 0; i < batch.sequence_count(); ++i) {
      const SequenceRows& sequence = batch.sequence(i);
      for (const StateSave& save : absl::MakeConstSpan(sequence.saves, sequence.save_count)) {
        saved_rows_.push_back(sequence.first_row + save.row - 1);
        saves_.push_back(save.slot);
      }
    }
    return model_->SaveStreams(saved_rows_, saves_);
  }

  absl::Status Draft(absl::Span<StepItem> items, ForEach for_each, DraftPace* /*pace*/,
                     bool* finished) override {
    batch_.Clear();
    sources_.clear();
    for (StepItem& item : items) AddKnownSlots(&item);
    const int32_t most = MostWanted(items);
    if (most > 1 && ChoosesOnDevice(*model_, items)) {
      return DraftAtOnce(items, for_each, most, finished);
    }
    for (int64_t draft = 0; !batch_.empty(); ++draft) {
      wants_.Clear();
      for (StepItem& item : items) {
        if (!item.drafting) continue;
        item.logits_row = wants_.size();
        wants_.Add(item.draft_row, item.timeline->DraftQuestion());
      }
      *finished = false;
      DSV4_RETURN_IF_ERROR(
          model_->ForwardDraft(batch_.rows(), batch_.tokens(), sources_, wants_.head()));
      if (wants_.empty()) break;
      DSV4_RETURN_IF_ERROR(wants_.Fetch(model_, finished));
      LogitRows* const logits = &model_->logits();
      for_each([&](StepItem& item) {
        if (!item.drafting) return;
        item.drafting = item.timeline->Draft(TokenLogits(logits, item.logits_row));
      });
      batch_.Clear();
      sources_.clear();
      for (StepItem& item : items) {
        if (!item.drafting) continue;
        const Timeline& timeline = *item.timeline;
        batch_.AddMtp(timeline.kv(), timeline.last_draft(), timeline.new_length() + draft + 1);
        sources_.push_back(StreamSource::OfRow(item.draft_row));
        item.draft_row = static_cast<int32_t>(sources_.size()) - 1;
      }
    }
    return absl::OkStatus();
  }

 private:
  // A pass whose rows continue with the tokens that the pass before it has chosen.
  struct LaterPass {
    explicit LaterPass(const ModelRanks& model) : batch(model.limits()), wants(model.limits()) {
      sources.reserve(static_cast<size_t>(model.limits().sequences));
    }
    StepBatch batch;
    LogitWants wants;
    std::vector<StreamSource> sources;
  };

  static int32_t MostWanted(absl::Span<const StepItem> items) {
    int32_t most = 0;
    for (const StepItem& item : items) {
      if (item.drafting) most = std::max(most, item.timeline->drafts_wanted());
    }
    return most;
  }

  // All passes and the choice of all drafts without waiting for the device in between. The answers
  // about draft i of the sessions are lists i * sessions and on.
  absl::Status DraftAtOnce(absl::Span<StepItem> items, ForEach for_each, int32_t most,
                           bool* finished) {
    const auto sessions = static_cast<int32_t>(std::count_if(
        items.begin(), items.end(), [](const StepItem& item) { return item.drafting; }));
    wants_.Clear();
    for (LaterPass& pass : later_) {
      pass.batch.Clear();
      pass.wants.Clear();
      pass.sources.clear();
    }
    int32_t session = 0;
    for (StepItem& item : items) {
      if (!item.drafting) continue;
      item.logits_row = session;
      for (int32_t draft = 0; draft < item.timeline->drafts_wanted(); ++draft) {
        const int32_t list = draft * sessions + session;
        std::optional<LogitQuestion> question = item.timeline->LaterDraftQuestion(draft);
        question->list = list;
        if (draft == 0) {
          wants_.Add(item.draft_row, question);
          continue;
        }
        LaterPass& pass = later_[static_cast<size_t>(draft - 1)];
        const int32_t token = -1 - (list - sessions);
        pass.batch.AddMtp(item.timeline->kv(), absl::MakeConstSpan(&token, 1),
                          item.timeline->new_length() + draft);
        pass.sources.push_back(StreamSource::OfRow(item.draft_row));
        item.draft_row = pass.batch.row_count() - 1;
        pass.wants.Add(item.draft_row, question);
      }
      ++session;
    }
    passes_.clear();
    passes_.push_back({batch_.rows(), batch_.tokens(), sources_, wants_.head()});
    for (int32_t draft = 1; draft < most; ++draft) {
      const LaterPass& pass = later_[static_cast<size_t>(draft - 1)];
      passes_.push_back({pass.batch.rows(), pass.batch.tokens(), pass.sources, pass.wants.head()});
    }
    *finished = false;
    DSV4_RETURN_IF_ERROR(model_->ForwardDrafts({.passes = passes_}));
    DSV4_RETURN_IF_ERROR(model_->Finish());
    *finished = true;
    LogitRows* const logits = &model_->logits();
    for (int32_t draft = 0; draft < most; ++draft) {
      for_each([&](StepItem& item) {
        if (!item.drafting) return;
        const int32_t list = draft * sessions + item.logits_row;
        item.drafting = item.timeline->Draft(TokenLogits(logits, list));
      });
    }
    return absl::OkStatus();
  }

  // What the step's rows and choices have made known: the slots up to the new end, and with drafts
  // wanted the one at it, whose output is the first draft.
  void AddKnownSlots(StepItem* item) {
    item->drafting = false;
    if (!item->in_step) return;
    Timeline& timeline = *item->timeline;
    const bool drafts = timeline.drafts_wanted() > 0;
    const int64_t first = std::max<int64_t>(timeline.drafter_rows(), 1);
    const int64_t end = timeline.new_length() + (drafts ? 1 : 0);
    if (end <= first) return;
    const absl::Span<const int32_t> tokens =
        timeline.all_tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    const int64_t begin = timeline.kv().length();
    batch_.AddMtp(timeline.kv(), tokens, first);
    for (int64_t slot = first; slot < end; ++slot) {
      const int64_t position = slot - 1;
      sources_.push_back(position < begin ? StreamSource::OfSlot(timeline.kv().state_slot())
                                          : StreamSource::OfRow(static_cast<int32_t>(
                                                item->first_row + position - begin)));
    }
    timeline.set_drafter_rows(end);
    item->draft_row = static_cast<int32_t>(sources_.size()) - 1;
    item->drafting = drafts;
  }

  ModelRanks* model_;
  StepBatch batch_;
  LogitWants wants_;
  std::vector<int32_t> saved_rows_;    // whose streams are
  std::vector<int32_t> saves_;         // and the slots that they go to
  std::vector<StreamSource> sources_;  // of the rows of the pass
  std::vector<LaterPass> later_;       // by draft, from the second on
  std::vector<DraftPass> passes_;
};

}  // namespace

std::unique_ptr<Drafter> MakeMtpDrafter(ModelRanks* model) {
  return std::make_unique<MtpDrafter>(model);
}

}  // namespace dsv4
