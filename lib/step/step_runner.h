// SPDX-License-Identifier: Apache-2.0
// One step of several sessions: one forward pass over their batch tokens, the choice of tokens, the
// drafts of the next ones, and the commit. The scheduler decides who takes part. A timeline that
// fails or is cancelled is left as before the step, and does not affect the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/device/watched_thread.h"
#include "lib/model/model_ranks.h"
#include "lib/step/draft_pace.h"
#include "lib/step/drafter.h"
#include "lib/step/step_batch.h"

namespace dsv4 {

class StepRunner {
 public:
  // `drafter` may be null; else what the model was planned with.
  StepRunner(ModelRanks* model, std::unique_ptr<Drafter> drafter, int64_t vocab);

  // From here on, steps run on a thread of their own. One in which a device's driver does not
  // return within the limit ends with DeviceLost, as all later ones do; the thread stays behind, so
  // that everything it may have been using must stay, too. `on_hang` is called before the requests
  // of that step end. Errors: OutOfHostMemory.
  absl::Status LimitSteps(std::chrono::milliseconds limit,
                          std::function<void(const absl::Status&)> on_hang);

  // Computes step_tokens of each request. REQUIRES: distinct timelines; batch tokens within the
  // model's limits. Sets each request's status and, if that is OK, its outcome. Does not throw:
  // running out of memory is a status too. Calls `between_layers` before each layer of the forward
  // pass.
  void Run(absl::Span<StepRequest* const> requests, absl::FunctionRef<void()> between_layers);
  // Whether steps run on this thread; false for a thread that calls Run.
  bool RunsOn(std::thread::id thread) const {
    return thread_ != nullptr && thread_->id() == thread;
  }

 private:
  // On the thread of the steps.
  void RunHere(absl::Span<StepRequest* const> requests, absl::FunctionRef<void()> between_layers);
  // Ends the requests of a step whose thread was left behind.
  void GiveUp(absl::Span<StepRequest* const> requests);
  // A status for the whole step; requests may have failed on their own.
  absl::Status Compute();
  absl::Status Forward();
  absl::Status Choose();
  absl::Status PromptLogProbs();
  // Reports to the pace a step in which every session chose a token.
  void Measured(double seconds);
  void RemoveCancelled();
  // The request's batch tokens whose logits are wanted.
  void WantLogits(StepRequest* request);
  absl::Span<const float> RowOf(const float* logits, int32_t row) const;

  ModelRanks* model_;
  const std::unique_ptr<Drafter> drafter_;
  const size_t vocab_;
  StepBatch batch_;
  LogitRequests logit_requests_;
  DraftPace pace_;
  absl::Span<StepRequest* const> requests_;
  std::unique_ptr<WatchedThread> thread_;  // null: the caller's
  std::function<void(const absl::Status&)> on_hang_;
  absl::Status hung_;
  bool device_idle_ = false;  // the device has nothing left to do of the step
  const absl::FunctionRef<void()>* between_layers_ = nullptr;
  const std::function<bool()> stop_;  // asked between layers
};

}  // namespace dsv4
