// SPDX-License-Identifier: Apache-2.0
// Drafts by a DSpark drafter, whose context rows every forward pass fills: one pass over a block of
// rows for each timeline that asks for drafts, then token after token, each by the logits of its
// row and the terms of the token before it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/step/drafter.h"

namespace dsv4 {
namespace {

class DsparkDrafter final : public Drafter {
 public:
  DsparkDrafter(ModelRanks* model, const DsparkConfig& config, int64_t context)
      : model_(model),
        context_(context),
        block_(static_cast<size_t>(config.block_size), static_cast<int32_t>(config.noise_token_id)),
        batch_(model->limits()) {
    logit_requests_.Reserve(model->limits().rows, model->limits().logit_rows);
    const auto drafts = static_cast<size_t>(model->limits().logit_rows);
    rows_.reserve(drafts);
    previous_.reserve(drafts);
    questions_.reserve(drafts);
  }

  absl::Status Draft(absl::Span<StepRequest* const> requests, DraftPace* pace,
                     bool* device_idle) override {
    const auto sessions = static_cast<int32_t>(
        std::count_if(requests.begin(), requests.end(), [](const StepRequest* request) {
          return request->step && request->step->drafts_wanted() > 0;
        }));
    const auto start = std::chrono::steady_clock::now();
    const bool at_once = ChoosesOnDevice(*model_, requests);
    batch_.Clear();
    logit_requests_.Clear();
    int32_t most = 0;
    for (StepRequest* request : requests) {
      request->drafting = false;
      if (!request->step) continue;
      const Timeline& timeline = *request->timeline;
      const int32_t wanted = request->step->drafts_wanted();
      const int64_t begin = request->step->new_length();
      if (wanted == 0 || begin + static_cast<int64_t>(block_.size()) > context_) continue;
      const absl::Span<const double> right = timeline.speculation().right();
      if (!pace->PassPays(sessions, right.subspan(0, static_cast<size_t>(wanted)))) continue;
      request->drafts = pace->Begin(sessions);
      block_[0] = timeline.all_tokens()[static_cast<size_t>(begin)];
      request->draft_row = batch_.row_count();
      request->logits_row = logit_requests_.size();
      batch_.AddBlock(timeline.kv(), block_, begin);
      for (int32_t row = 0; row < wanted; ++row) logit_requests_.Add(request->draft_row + row);
      request->drafting = true;
      most = std::max(most, wanted);
    }
    if (batch_.empty()) return absl::OkStatus();
    *device_idle = false;
    if (at_once) {
      DSV4_RETURN_IF_ERROR(DraftAtOnce(requests, most));
      *device_idle = true;
    } else {
      DSV4_RETURN_IF_ERROR(
          model_->ForwardDraft(batch_.rows(), batch_.tokens(), {}, logit_requests_));
    }
    LogitRows* const logits = &model_->logits();
    for (int32_t draft = 0; draft < most; ++draft) {
      if (!at_once) {
        DSV4_RETURN_IF_ERROR(Follow(requests, draft, device_idle));
        if (rows_.empty()) break;
      }
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        const double sure = model_->Confidence(request->logits_row + draft);
        // It depends on the token before the draft alone: leaving the draft out changes no odds.
        request->drafting = request->drafts.Pays(1 / (1 + std::exp(-sure)));
      }
      for (StepRequest* request : requests) {
        if (!request->drafting) continue;
        request->drafting = request->step->Draft(logits, request->logits_row + draft);
      }
    }
    pace->AddPass(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    return absl::OkStatus();
  }

 private:
  // The pass, and the choice of all drafts, without waiting for the device in between.
  absl::Status DraftAtOnce(absl::Span<StepRequest* const> requests, int32_t most) {
    rows_.clear();
    previous_.clear();
    questions_.clear();
    int32_t sessions = 0;
    for (int32_t draft = 0; draft < most; ++draft) {
      for (const StepRequest* request : requests) {
        if (!request->drafting) continue;
        if (draft == 0) ++sessions;
        const bool wanted = draft < request->step->drafts_wanted();
        const int32_t row = request->logits_row + draft;
        rows_.push_back(wanted ? row : -1);
        previous_.push_back(draft == 0 ? request->step->newest() : -1 - (row - 1));
        if (!wanted) continue;
        questions_.push_back(*request->step->LaterDraftQuestion(draft));
        questions_.back().row = row;
      }
    }
    const DraftPass pass{batch_.rows(), batch_.tokens(), {}, &logit_requests_};
    DSV4_RETURN_IF_ERROR(model_->ForwardDrafts({.passes = absl::MakeConstSpan(&pass, 1),
                                                .following = {.drafts = most,
                                                              .sequences = sessions,
                                                              .rows = rows_.data(),
                                                              .tokens = previous_.data(),
                                                              .questions = questions_}}));
    return model_->Synchronize();
  }

  // Draft `draft` of all that still draft.
  absl::Status Follow(absl::Span<StepRequest* const> requests, int32_t draft, bool* device_idle) {
    rows_.clear();
    previous_.clear();
    questions_.clear();
    for (StepRequest* request : requests) {
      if (!request->drafting) continue;
      rows_.push_back(request->logits_row + draft);
      previous_.push_back(request->step->newest());
      if (std::optional<LogitQuestion> question = request->step->DraftQuestion()) {
        question->row = rows_.back();
        questions_.push_back(*question);
      }
    }
    if (rows_.empty()) return absl::OkStatus();
    *device_idle = false;
    DSV4_RETURN_IF_ERROR(model_->FollowDrafts(rows_, previous_, questions_));
    DSV4_RETURN_IF_ERROR(model_->Synchronize());
    *device_idle = true;
    return absl::OkStatus();
  }

  ModelRanks* model_;
  const int64_t context_;       // tokens
  std::vector<int32_t> block_;  // the newest token, and noise
  StepBatch batch_;
  LogitRequests logit_requests_;
  // The rows of the next drafts, the tokens before them, and the questions about their logits.
  std::vector<int32_t> rows_, previous_;
  std::vector<LogitQuestion> questions_;
};

}  // namespace

std::unique_ptr<Drafter> MakeDsparkDrafter(ModelRanks* model, const DsparkConfig& config,
                                           int64_t context) {
  return std::make_unique<DsparkDrafter>(model, config, context);
}

}  // namespace dsv4
