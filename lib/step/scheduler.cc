// SPDX-License-Identifier: Apache-2.0
#include "lib/step/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "lib/base/error.h"

namespace dsv4 {

StepCall::~StepCall() {
  if (open_ > 0) scheduler_->Wait(this);
}

Scheduler::Scheduler(StepRunner* runner, int64_t prefill_tokens, int32_t max_sessions)
    : runner_(runner),
      prefill_tokens_(prefill_tokens),
      clock_(&std::chrono::steady_clock::now),
      pace_(prefill_tokens) {
  const auto sessions = static_cast<size_t>(max_sessions);
  waiting_.reserve(sessions);
  taken_.reserve(sessions);
  prompts_.reserve(sessions);
}

absl::Status Scheduler::CheckThread() {
  MutexLock lock(&mutex_);
  const std::thread::id self = std::this_thread::get_id();
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(), [&](const StepRequest* request) {
    return request->call->thread_ == self;
  });
  const bool leads = leader_ != nullptr && (leader_->thread_ == self || runner_->RunsOn(self));
  if (!waits && !leads) return absl::OkStatus();
  return Busy("called from a callback inside a step of the engine");
}

void Scheduler::Add(StepRequest* request, StepCall* call) {
  MutexLock lock(&mutex_);
  request->call = call;
  ++call->open_;
  waiting_.push_back(request);
}

void Scheduler::Wait(StepCall* call) {
  MutexLock lock(&mutex_);
  while (call->open_ > 0) {
    if (leader_ != nullptr) {
      call->changed_.Wait(&mutex_);
    } else {
      const Leadership leadership(&leader_, call);
      RunStep();
    }
  }
  if (leader_ == nullptr && !waiting_.empty()) waiting_.front()->call->changed_.Signal();
}

void Scheduler::set_runner(StepRunner* runner) {
  MutexLock lock(&mutex_);
  runner_ = runner;
  if (runner != nullptr) counts_.device_lost = false;
}

StepCounts Scheduler::counts() const {
  MutexLock lock(&mutex_);
  StepCounts counts = counts_;
  counts.waiting_requests = static_cast<int32_t>(waiting_.size());
  return counts;
}

void Scheduler::Count(const StepOutcome& outcome) {
  counts_.step_tokens += outcome.batch_tokens;
  if (outcome.verified_drafts == 0) return;
  ++counts_.draft_steps;
  counts_.drafted_tokens += outcome.verified_drafts;
  counts_.accepted_tokens += outcome.accepted_drafts;
}

void Scheduler::CountLone(const StepRequest& request, double seconds) {
  const StepOutcome& outcome = request.outcome;
  const bool decodes = request.choose && outcome.batch_tokens == 1 + outcome.verified_drafts;
  if (!decodes || !request.status.ok()) return;
  counts_.lone_tokens += 1 + outcome.accepted_drafts;
  counts_.lone_seconds += seconds;
}

void Scheduler::Complete(StepRequest* request) {
  const absl::Status& status = request->status;
  counts_.cancelled_requests += absl::IsCancelled(status);
  counts_.failed_requests += !status.ok() && !absl::IsCancelled(status);
  counts_.device_lost = counts_.device_lost || IsDeviceLost(status);
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), request));
  if (--request->call->open_ == 0) request->call->changed_.Signal();
}

void Scheduler::RunStep() {
  ++step_;
  Assemble();
  const auto start = clock_();
  {
    const MutexUnlock unlock(&mutex_);
    runner_->Run(taken_, [this] { CompleteCancelled(); });
  }
  ++counts_.steps;
  const double seconds = std::chrono::duration<double>(clock_() - start).count();
  counts_.step_seconds += seconds;
  Measured(seconds);
  if (taken_.size() == 1) CountLone(*taken_.front(), seconds);
  for (StepRequest* request : taken_) {
    if (request->status.ok()) {
      request->tokens -= request->step_tokens;
      Count(request->outcome);
    }
    const bool done = request->choose || request->one_step || request->tokens <= 0;
    if (done || !request->status.ok()) Complete(request);
  }
}

void Scheduler::Measured(double seconds) {
  int64_t prompt_tokens = 0;
  for (const StepRequest* request : taken_) {
    if (!request->status.ok()) continue;
    if (request->choose) {
      decoder_ = request->timeline;
      decoded_ = clock_();
    } else {
      prompt_tokens += request->step_tokens;
    }
  }
  pace_.AddStep(prompt_tokens, shared_, seconds);
}

// Those that wait for a step need not wait for it to be cancelled.
void Scheduler::CompleteCancelled() {
  MutexLock lock(&mutex_);
  for (size_t i = waiting_.size(); i-- > 0;) {
    StepRequest* request = waiting_[i];
    if (request->last_step == step_ || !request->timeline->stopped()) continue;
    request->status = request->timeline->CancelledStatus();
    Complete(request);
  }
}

void Scheduler::Assemble() {
  SharePrefill();
  taken_.clear();
  // Those that choose come first, so that prompts never take their blocks.
  for (const bool choose : {true, false}) {
    for (StepRequest* request : waiting_) {
      if (request->choose != choose || request->step_tokens == 0) continue;
      request->last_step = step_;
      taken_.push_back(request);
    }
  }
}

// A session that got a token and whose thread has not asked for the next one yet decodes, too.
bool Scheduler::OthersDecode() const {
  bool others = false;
  for (const StepRequest* request : waiting_) {
    if (request->choose || request->call->decoding_) return true;
    others = others || request->timeline == decoder_;
  }
  return decoder_ != nullptr && !others && clock_() - decoded_ < PromptPace::kTarget;
}

// Divides the rows of a step evenly among prompts. Rows that a prompt does not need go to the
// others. With fewer rows than prompts, the prompts that waited longest come first.
void Scheduler::SharePrefill() {
  prompts_.clear();
  for (StepRequest* request : waiting_) {
    request->step_tokens = request->timeline->NextTokens(request->tokens);
    if (!request->choose) prompts_.push_back(request);
  }
  const auto few_first = [](const StepRequest* a, const StepRequest* b) {
    return a->step_tokens < b->step_tokens;
  };
  const auto oldest_first = [](const StepRequest* a, const StepRequest* b) {
    return a->last_step < b->last_step;
  };
  shared_ = !prompts_.empty() && OthersDecode();
  int64_t left = shared_ ? pace_.tokens() : prefill_tokens_;
  auto sharers = static_cast<int64_t>(prompts_.size());
  if (sharers > left) {
    std::sort(prompts_.begin(), prompts_.end(), oldest_first);
  } else {
    std::sort(prompts_.begin(), prompts_.end(), few_first);
  }
  for (StepRequest* request : prompts_) {
    const int64_t share = std::min(std::max<int64_t>(left / sharers--, 1), left);
    request->step_tokens = std::min(request->step_tokens, share);
    left -= request->step_tokens;
  }
}

}  // namespace dsv4
