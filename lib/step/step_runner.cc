// SPDX-License-Identifier: Apache-2.0
#include "lib/step/step_runner.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {

StepRunner::StepRunner(ModelRanks* model, std::unique_ptr<Drafter> drafter, int64_t vocab)
    : model_(model),
      drafter_(std::move(drafter)),
      vocab_(static_cast<size_t>(vocab)),
      batch_(model->limits()),
      stop_([this] {
        (*between_layers_)();
        return std::any_of(requests_.begin(), requests_.end(), [](const StepRequest* request) {
          return request->step && request->timeline->stopped();
        });
      }) {
  logit_requests_.Reserve(model->limits().rows, model->limits().logit_rows);
}

absl::Span<const float> StepRunner::RowOf(const float* logits, int32_t row) const {
  return {logits + static_cast<size_t>(row) * vocab_, vocab_};
}

absl::Status StepRunner::LimitSteps(std::chrono::milliseconds limit,
                                    std::function<void(const absl::Status&)> on_hang) {
  DSV4_ASSIGN_OR_RETURN(thread_, WatchedThread::Start(limit));
  on_hang_ = std::move(on_hang);
  return absl::OkStatus();
}

void StepRunner::Run(absl::Span<StepRequest* const> requests,
                     absl::FunctionRef<void()> between_layers) {
  if (thread_ == nullptr) return RunHere(requests, between_layers);
  if (!thread_->Run([&] { RunHere(requests, between_layers); })) GiveUp(requests);
}

// The steps of the requests are as the thread left them: it changes nothing any more.
void StepRunner::GiveUp(absl::Span<StepRequest* const> requests) {
  if (hung_.ok()) {
    hung_ = Contained([&] {
      return DeviceLost("a device has not answered for ",
                        std::chrono::duration<double>(thread_->limit()).count(),
                        " s (setting step_limit_seconds): its driver has not returned from a call. "
                        "The thread of the step and the engine's memory are left behind; only "
                        "another process can use the device again");
    });
    Contained([&] {
      on_hang_(hung_);
      return absl::OkStatus();
    }).IgnoreError();
  }
  for (StepRequest* request : requests) {
    request->step.reset();
    request->status = hung_;
  }
}

void StepRunner::RunHere(absl::Span<StepRequest* const> requests,
                         absl::FunctionRef<void()> between_layers) {
  requests_ = requests;
  device_idle_ = false;
  between_layers_ = &between_layers;
  const absl::Status status = Contained([&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(Compute());
    return device_idle_ ? absl::OkStatus() : model_->Synchronize();
  });
  // Kernels of a step that ended early would read the memory of the next one.
  if (!status.ok()) Contained([&] { return model_->Synchronize(); }).IgnoreError();
  for (StepRequest* request : requests_) {
    if (!request->step) continue;
    if (status.ok()) {
      request->outcome = request->step->Commit();
    } else {
      request->status = status;
    }
    request->step.reset();
  }
}

absl::Status StepRunner::Compute() {
  const auto start = std::chrono::steady_clock::now();
  DSV4_RETURN_IF_ERROR(Forward());
  if (batch_.empty()) return absl::OkStatus();
  if (drafter_ != nullptr) DSV4_RETURN_IF_ERROR(drafter_->AfterForward(batch_));
  DSV4_RETURN_IF_ERROR(Choose());
  DSV4_RETURN_IF_ERROR(PromptLogProbs());
  if (drafter_ == nullptr) return absl::OkStatus();
  Measured(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  DSV4_RETURN_IF_ERROR(drafter_->Draft(requests_, &pace_, &device_idle_));
  for (StepRequest* request : requests_) {
    if (request->step) request->step->EndDrafts();
  }
  return absl::OkStatus();
}

void StepRunner::Measured(double seconds) {
  const bool decodes =
      std::all_of(requests_.begin(), requests_.end(), [](const StepRequest* request) {
        return request->step && request->choose && request->step_tokens == 1 &&
               request->step->prompt_log_prob_rows() == 0;
      });
  if (decodes) pace_.AddStep(batch_.rows().rows, seconds);
}

void StepRunner::RemoveCancelled() {
  for (StepRequest* request : requests_) {
    if (!request->status.ok() || !request->timeline->stopped()) continue;
    request->step.reset();
    request->status = request->timeline->CancelledStatus();
  }
}

absl::Status StepRunner::Forward() {
  for (;;) {
    RemoveCancelled();
    batch_.Clear();
    logit_requests_.Clear();
    for (StepRequest* request : requests_) request->step.reset();
    for (StepRequest* request : requests_) {
      if (!request->status.ok()) continue;
      request->step.emplace(request->timeline, &batch_, request->step_tokens, request->choose,
                            &request->status);
      if (request->status.ok()) {
        WantLogits(request);
      } else {
        request->step.reset();
      }
    }
    if (batch_.empty()) return absl::OkStatus();
    const absl::Status status =
        model_->Forward(batch_.rows(), batch_.tokens(), &stop_, logit_requests_);
    // Only stop_ cancels a pass. The step starts over without the cancelled requests.
    if (absl::IsCancelled(status)) continue;
    if (status.ok()) RemoveCancelled();
    return status;
  }
}

absl::Status StepRunner::Choose() {
  if (logit_requests_.empty()) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(model_->Fetch(logit_requests_, &device_idle_));
  LogitRows* const logits = &model_->logits();
  for (StepRequest* request : requests_) {
    if (!request->step || request->logits_row < 0) continue;
    request->status = Contained([&]() -> absl::Status {
      if (request->choose) return request->step->Choose(logits, request->logits_row);
      DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> row, logits->Row(request->logits_row));
      request->step->TakeLogits(row);
      return absl::OkStatus();
    });
  }
  return absl::OkStatus();
}

void StepRunner::WantLogits(StepRequest* request) {
  const TimelineStep& step = *request->step;
  request->logits_row = -1;
  if (!request->choose && !step.WantsLogits()) return;
  request->logits_row = logit_requests_.size();
  const int32_t first = step.first_row(), end = first + step.rows();
  for (int32_t row = request->choose ? first : end - 1; row < end; ++row) {
    logit_requests_.Add(row, request->choose ? step.Question(row - first) : std::nullopt);
  }
}

// In slices of as many rows as the head computes at once.
absl::Status StepRunner::PromptLogProbs() {
  for (StepRequest* request : requests_) {
    if (!request->step) continue;
    TimelineStep& step = *request->step;
    const int32_t first = step.first_prompt_log_prob_row();
    const int32_t end = first + step.prompt_log_prob_rows();
    for (int32_t row = first; row < end;) {
      const int32_t count = std::min(end - row, model_->limits().logit_rows);
      logit_requests_.Clear();
      for (int32_t i = 0; i < count; ++i) logit_requests_.Add(step.first_row() + row + i);
      device_idle_ = false;
      DSV4_ASSIGN_OR_RETURN(const float* logits, model_->Logits(logit_requests_.rows));
      for (int32_t i = 0; i < count; ++i) {
        step.TakePromptLogProbs(row + i, RowOf(logits, i));
      }
      row += count;
    }
  }
  return absl::OkStatus();
}

}  // namespace dsv4
