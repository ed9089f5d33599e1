// SPDX-License-Identifier: Apache-2.0
// Drafts by an MTP block. Its rows lie one slot later than the main ones. A row is computed from a
// token and the streams of the token before it, which are those of the step's rows or those stored
// in the last state. Each pass after the first drafts one more token from the block's own output.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/step/drafter.h"

namespace dsv4 {
namespace {

class MtpDrafter final : public Drafter {
 public:
  explicit MtpDrafter(ModelRanks* model) : model_(model), batch_(model->limits()) {
    logit_requests_.Reserve(model->limits().rows, model->limits().logit_rows);
    const auto rows = static_cast<size_t>(model->limits().rows);
    stream_rows_.reserve(rows);
    stream_slots_.reserve(rows);
    sources_.reserve(rows);
    for (int32_t draft = 1; draft < model->limits().drafts; ++draft) later_.emplace_back(*model);
    passes_.reserve(later_.size() + 1);
  }

  // X of the row of each state write, into the state slot.
  absl::Status AfterForward(const StepBatch& batch) override {
    stream_rows_.clear();
    stream_slots_.clear();
    for (int32_t i = 0; i < batch.sequence_count(); ++i) {
      const SequenceRows& sequence = batch.sequence(i);
      for (const StateWrite& write :
           absl::MakeConstSpan(sequence.state_writes, sequence.state_write_count)) {
        stream_rows_.push_back(sequence.first_row + write.row - 1);
        stream_slots_.push_back(write.slot);
      }
    }
    return model_->StoreStreams(stream_rows_, stream_slots_);
  }

  absl::Status Draft(absl::Span<StepRequest* const> requests, DraftPace* /*pace*/,
                     bool* device_idle) override {
    batch_.Clear();
    sources_.clear();
    for (StepRequest* request : requests) AddKnownSlots(request);
    const int32_t most = MostWanted(requests);
    if (most > 1 && ChoosesOnDevice(*model_, requests)) {
      return DraftAtOnce(requests, most, device_idle);
    }
    for (int64_t draft = 0; !batch_.empty(); ++draft) {
      logit_requests_.Clear();
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        request->logits_row = logit_requests_.size();
        logit_requests_.Add(request->draft_row, request->step->DraftQuestion());
      }
      *device_idle = false;
      DSV4_RETURN_IF_ERROR(
          model_->ForwardDraft(batch_.rows(), batch_.tokens(), sources_, logit_requests_));
      if (logit_requests_.empty()) break;
      DSV4_RETURN_IF_ERROR(model_->Fetch(logit_requests_, device_idle));
      LogitRows* const logits = &model_->logits();
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        request->drafting = request->step->Draft(logits, request->logits_row);
      }
      batch_.Clear();
      sources_.clear();
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        const TimelineStep& step = *request->step;
        batch_.AddMtp(request->timeline->kv(), absl::MakeConstSpan(&step.newest(), 1),
                      step.new_length() + draft + 1);
        sources_.push_back(StreamSource::OfRow(request->draft_row));
        request->draft_row = static_cast<int32_t>(sources_.size()) - 1;
      }
    }
    return absl::OkStatus();
  }

 private:
  // A pass whose rows continue with the tokens that the pass before it has chosen.
  struct LaterPass {
    explicit LaterPass(const ModelRanks& model) : batch(model.limits()) {
      logits.Reserve(model.limits().rows, model.limits().logit_rows);
      sources.reserve(static_cast<size_t>(model.limits().sequences));
    }
    StepBatch batch;
    LogitRequests logits;
    std::vector<StreamSource> sources;
  };

  static int32_t MostWanted(absl::Span<StepRequest* const> requests) {
    int32_t most = 0;
    for (const StepRequest* request : requests) {
      if (request->drafting) most = std::max(most, request->step->drafts_wanted());
    }
    return most;
  }

  // All passes and the choice of all drafts without waiting for the device in between. The answers
  // about draft i of the sessions are lists i * sessions and on.
  absl::Status DraftAtOnce(absl::Span<StepRequest* const> requests, int32_t most,
                           bool* device_idle) {
    const auto sessions = static_cast<int32_t>(
        std::count_if(requests.begin(), requests.end(),
                      [](const StepRequest* request) { return request->drafting; }));
    logit_requests_.Clear();
    for (LaterPass& pass : later_) {
      pass.batch.Clear();
      pass.logits.Clear();
      pass.sources.clear();
    }
    int32_t session = 0;
    for (StepRequest* request : requests) {
      if (!request->drafting) continue;
      request->logits_row = session;
      for (int32_t draft = 0; draft < request->step->drafts_wanted(); ++draft) {
        const int32_t list = draft * sessions + session;
        std::optional<LogitQuestion> question = request->step->LaterDraftQuestion(draft);
        question->list = list;
        if (draft == 0) {
          logit_requests_.Add(request->draft_row, question);
          continue;
        }
        LaterPass& pass = later_[static_cast<size_t>(draft - 1)];
        const int32_t token = -1 - (list - sessions);
        pass.batch.AddMtp(request->timeline->kv(), absl::MakeConstSpan(&token, 1),
                          request->step->new_length() + draft);
        pass.sources.push_back(StreamSource::OfRow(request->draft_row));
        request->draft_row = pass.batch.row_count() - 1;
        pass.logits.Add(request->draft_row, question);
      }
      ++session;
    }
    passes_.clear();
    passes_.push_back({batch_.rows(), batch_.tokens(), sources_, &logit_requests_});
    for (int32_t draft = 1; draft < most; ++draft) {
      const LaterPass& pass = later_[static_cast<size_t>(draft - 1)];
      passes_.push_back({pass.batch.rows(), pass.batch.tokens(), pass.sources, &pass.logits});
    }
    *device_idle = false;
    DSV4_RETURN_IF_ERROR(model_->ForwardDrafts({.passes = passes_}));
    DSV4_RETURN_IF_ERROR(model_->Synchronize());
    *device_idle = true;
    LogitRows* const logits = &model_->logits();
    for (int32_t draft = 0; draft < most; ++draft) {
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        const int32_t list = draft * sessions + request->logits_row;
        request->drafting = request->step->Draft(logits, list);
      }
    }
    return absl::OkStatus();
  }

  // Adds the slots whose tokens and streams the step has determined: up to the new end and, if the
  // timeline asks for drafts, the slot at the end, whose output is the first draft.
  void AddKnownSlots(StepRequest* request) {
    request->drafting = false;
    if (!request->step) return;
    const Timeline& timeline = *request->timeline;
    TimelineStep& step = *request->step;
    const bool drafts = step.drafts_wanted() > 0;
    const int64_t first = std::max<int64_t>(step.drafter_rows(), 1);
    const int64_t end = step.new_length() + (drafts ? 1 : 0);
    if (end <= first) return;
    const absl::Span<const int32_t> tokens =
        timeline.all_tokens().subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
    const int64_t begin = timeline.kv().length();
    batch_.AddMtp(timeline.kv(), tokens, first);
    for (int64_t slot = first; slot < end; ++slot) {
      const int64_t position = slot - 1;
      sources_.push_back(position < begin ? StreamSource::OfSlot(timeline.kv().state_slot())
                                          : StreamSource::OfRow(static_cast<int32_t>(
                                                step.first_row() + position - begin)));
    }
    step.set_drafter_rows(end);
    request->draft_row = static_cast<int32_t>(sources_.size()) - 1;
    request->drafting = drafts;
  }

  ModelRanks* model_;
  StepBatch batch_;
  LogitRequests logit_requests_;
  std::vector<int32_t> stream_rows_;   // whose streams are
  std::vector<int32_t> stream_slots_;  // and the slots that they go to
  std::vector<StreamSource> sources_;  // of the rows of the pass
  std::vector<LaterPass> later_;       // by draft, from the second on
  std::vector<DraftPass> passes_;
};

}  // namespace

std::unique_ptr<Drafter> MakeMtpDrafter(ModelRanks* model) {
  return std::make_unique<MtpDrafter>(model);
}

}  // namespace dsv4
