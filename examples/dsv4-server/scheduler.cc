// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/scheduler.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/log.h"

namespace server {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A call that fails so can be repeated when the engine has been resumed.
bool NeedsResume(dsv4_status status) {
  return status == DSV4_ERR_DEVICE_LOST || status == DSV4_ERR_SUSPENDED;
}

}  // namespace

Scheduler::Scheduler(const dsv4::Engine& engine, Metrics* metrics, const SchedulerLimits& limits,
                     std::function<void()> on_lost)
    : engine_(engine),
      metrics_(metrics),
      limits_(limits),
      on_lost_(std::move(on_lost)),
      most_sessions_(static_cast<size_t>(engine.info().max_sessions)),
      idle_(engine.metrics()),
      allowed_sessions_(most_sessions_),
      queue_(engine, {.kept = most_sessions_ / 2,
                      .resume = [this](const dsv4::Error& error) { Wake({}, error.what()); },
                      .on_step = [this] { CountStep(); }}) {
  if (limits_.suspend_after.count() > 0) thread_ = std::thread([this] { Run(); });
}

Scheduler::~Scheduler() {
  queue_.Close();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Scheduler::Place::~Place() {
  {
    const std::lock_guard lock(scheduler_->mutex_);
    if (waits_)
      scheduler_->waiting_.erase(entry_);
    else
      scheduler_->open_sessions_ -= sessions_;
    scheduler_->work_.notify_all();
  }
  scheduler_->Grant();
}

std::unique_ptr<Scheduler::Place> Scheduler::Enter(size_t sessions, bool again,
                                                   std::function<void()> on_turn) {
  std::unique_ptr<Place> place(new Place(this, sessions, again, std::move(on_turn)));
  {
    const std::lock_guard lock(mutex_);
    place->entry_ = waiting_.insert(waiting_.end(), place.get());
    try {
      if (!loss_.empty()) throw DeviceLost(loss_);
      if (draining_ && !again) throw Stopping();
      if (!again && open_sessions_ + waiting_.size() > limits_.requests)
        throw ApiError{429, "rate_limit_error",
                       std::to_string(limits_.requests) + " requests are running or waiting", "",
                       "too_many_requests"};
    } catch (...) {
      waiting_.pop_back();
      place->waits_ = false;
      place->sessions_ = 0;
      // Its destructor takes the lock.
      throw;
    }
  }
  Grant();
  return place;
}

void Scheduler::Grant() {
  std::vector<std::function<void()>> turns;
  {
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty() &&
           (cancelled_ || open_sessions_ == 0 ||
            open_sessions_ + waiting_.front()->sessions_ <= allowed_sessions_)) {
      Place* place = waiting_.front();
      waiting_.pop_front();
      place->waits_ = false;
      open_sessions_ += place->sessions_;
      turns.push_back(std::move(place->on_turn_));
    }
  }
  for (const auto& turn : turns) turn();
}

Scheduler::Generations Scheduler::Open(Place* place, const std::vector<Candidate>& candidates,
                                       const std::function<void()>& notify,
                                       const std::function<bool()>& is_gone) {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw Stopping();
  }
  // What begins again was counted.
  if (!place->again_) {
    metrics_->LeaveQueue(SecondsSince(place->begin_));
    metrics_->CountRequest(candidates.size(), candidates[0].prompt->sampling.max_tokens);
  }
  Wake(is_gone, "");
  Generations generations;
  for (const Candidate& candidate : candidates) {
    AwaitKept(*candidate.prompt);
    DropKept();
    WithEngine(is_gone, [&] {
      generations.push_back(std::make_shared<Generation>(engine_, *candidate.prompt, candidate.seed,
                                                         place->begin_, notify, &queue_.kept()));
    });
    if (!place->again_) metrics_->CountPrompt(generations.back()->stats());
  }
  {
    const std::lock_guard lock(mutex_);
    place->sessions_ -= generations.size();
    for (const auto& generation : generations) {
      if (cancelled_) generation->Stop();
      running_.push_back(generation);
    }
  }
  uint64_t group = 0;
  for (const auto& generation : generations) {
    generation->Submit(&queue_, group, [this, generation](dsv4::QueueEvent event) {
      OnEvent(generation.get(), std::move(event));
    });
    group = generation->group();
  }
  return generations;
}

void Scheduler::AwaitKept(const Prompt& prompt) {
  if (prompt.continues.empty()) return;
  std::unique_lock lock(mutex_);
  closed_.wait_for(lock, std::chrono::milliseconds(200), [&] {
    return std::none_of(running_.begin(), running_.end(), [&](const auto& generation) {
      return generation->keep_as() == prompt.continues;
    });
  });
}

void Scheduler::DropKept() {
  const auto too_many = [&] {
    const std::lock_guard lock(mutex_);
    return open_sessions_ + queue_.kept().size() > most_sessions_;
  };
  while (too_many() && queue_.kept().DropOldest()) {
  }
}

void Scheduler::Abandon(std::unique_ptr<Place> place) {
  metrics_->CountEnd("abort", SecondsSince(place->begin_), {});
}

void Scheduler::Probe(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    if (!running_.empty() || SecondsSince(last_token_) < seconds) return;
    if (suspending_ || suspended() || std::exchange(probing_, true)) return;
  }
  dsv4::QueueRequest request;
  request.tokens = {engine_.info().bos_token};
  request.sampling.max_tokens = 1;
  request.on_event = [this](const dsv4::QueueEvent& event) {
    if (event.type != dsv4::QueueEvent::kEnded) return;
    std::string failure;
    try {
      if (event.failure) std::rethrow_exception(event.failure);
    } catch (...) {
      failure = CurrentApiError().message;
    }
    const std::lock_guard lock(mutex_);
    probing_ = false;
    probe_failure_ = failure;
    if (failure.empty()) last_token_ = Clock::now();
    work_.notify_all();
  };
  queue_.Submit(std::move(request));
}

std::string Scheduler::probe_failure() const {
  const std::lock_guard lock(mutex_);
  return probe_failure_;
}

bool Scheduler::lost() const {
  const std::lock_guard lock(mutex_);
  return recovering_ || !loss_.empty();
}

bool Scheduler::given_up() const {
  const std::lock_guard lock(mutex_);
  return !loss_.empty();
}

void Scheduler::Wake(const std::function<bool()>& is_gone, const std::string& failure) {
  const std::lock_guard memory(memory_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!loss_.empty()) throw DeviceLost(loss_);
  }
  const dsv4::EngineMetrics metrics = engine_.metrics();
  if (metrics.device_lost != 0) return Recover(failure);
  if (metrics.suspended == 0) return;
  bool gone = false;
  try {
    engine_.Resume([&](const dsv4::ProgressReport&) {
      gone = is_gone && is_gone();
      const std::lock_guard lock(mutex_);
      return !gone && !cancelled_;
    });
  } catch (const dsv4::Error&) {
    if (gone) throw ClientGone();
    throw;
  }
  Log("the model is in memory again");
}

void Scheduler::Recover(const std::string& failure) {
  std::string message = failure.empty() ? "the device is lost" : failure;
  Log("the device was lost: " + message);
  if (recoveries_ < limits_.recoveries) {
    {
      const std::lock_guard lock(mutex_);
      recovering_ = true;
    }
    ++recoveries_;
    try {
      engine_.Resume([&](const dsv4::ProgressReport&) {
        const std::lock_guard lock(mutex_);
        return !cancelled_;
      });
      metrics_->CountReopening();
      Log("the model is loaded again");
      const std::lock_guard lock(mutex_);
      recovering_ = false;
      return;
    } catch (const dsv4::Error& error) {
      message += std::string("; the model could not be loaded again: ") + error.what();
      Log(message);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    recovering_ = false;
    loss_ = message;
  }
  on_lost_();
  throw DeviceLost(message);
}

template <class Function>
void Scheduler::WithEngine(const std::function<bool()>& is_gone, const Function& compute) {
  try {
    return compute();
  } catch (const dsv4::Error& error) {
    if (!NeedsResume(error.code())) throw;
    Wake(is_gone, error.what());
  }
  compute();
}

void Scheduler::Suspend() {
  const std::lock_guard memory(memory_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (open_sessions_ > 0 || !waiting_.empty() || probing_) return;
    suspending_ = true;
  }
  // Requests that come now wait in Wake.
  while (queue_.kept().DropOldest()) {
  }
  std::string failure;
  try {
    engine_.Suspend();
    Log("idle: the model's memory is given back");
  } catch (const dsv4::Error& error) {
    Log(std::string("the model cannot be suspended: ") + error.what());
    failure = error.what();
  }
  const std::lock_guard lock(mutex_);
  suspending_ = false;
  if (!failure.empty()) last_request_ = Clock::now();  // until the next try
}

void Scheduler::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Scheduler::CancelAll() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const auto& generation : running_) generation->Stop();
  }
  Grant();
}

bool Scheduler::idle() const {
  const std::lock_guard lock(mutex_);
  return open_sessions_ == 0 && waiting_.empty();
}

bool Scheduler::full() const {
  const std::lock_guard lock(mutex_);
  return open_sessions_ + waiting_.size() >= limits_.requests;
}

Load Scheduler::load() const {
  const dsv4::EngineMetrics metrics = engine_.metrics();
  const auto share = [&](int32_t dsv4::EngineMetrics::*all, int32_t dsv4::EngineMetrics::*used) {
    const int32_t own = idle_.*used;
    return metrics.*all == own ? 0.0
                               : static_cast<double>(metrics.*used - own) / (metrics.*all - own);
  };
  using M = dsv4::EngineMetrics;
  const double cache_share =
      std::max({share(&M::window_blocks, &M::window_blocks_used),
                share(&M::compressed_kv_blocks, &M::compressed_kv_blocks_used),
                share(&M::state_slots, &M::state_slots_used)});
  const std::lock_guard lock(mutex_);
  return {open_sessions_, waiting_.size(), cache_share, metrics};
}

void Scheduler::Run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const Clock::time_point end = last_request_ + limits_.suspend_after;
    if (open_sessions_ > 0 || !waiting_.empty() || probing_ || suspended()) {
      work_.wait(lock);
    } else if (Clock::now() < end) {
      work_.wait_until(lock, end);
    } else {
      lock.unlock();
      Suspend();
      lock.lock();
    }
  }
}

void Scheduler::CountStep() {
  const uint64_t step_tokens = engine_.metrics().step_tokens;
  if (step_tokens > step_tokens_) metrics_->CountStep(step_tokens - step_tokens_);
  step_tokens_ = step_tokens;
}

void Scheduler::OnEvent(Generation* generation, dsv4::QueueEvent event) {
  if (event.type == dsv4::QueueEvent::kToken) {
    CountToken(generation, event);
    generation->Put(std::move(event));
  } else if (event.type == dsv4::QueueEvent::kEnded) {
    OnEnd(generation, std::move(event));
  }
}

void Scheduler::CountToken(Generation* generation, const dsv4::QueueEvent& event) {
  metrics_->CountToken();
  if (event.stats.generated_tokens > 1)
    metrics_->NextToken(SecondsSince(generation->last_token));
  else
    metrics_->FirstToken(SecondsSince(generation->begin));
  generation->last_token = event.time;
  if (event.step.finish != DSV4_FINISH_NONE) {
    metrics_->CountEnd(FinishReason(event.step.finish), SecondsSince(generation->begin),
                       event.stats);
  }
  const std::lock_guard lock(mutex_);
  last_token_ = event.time;
  probe_failure_.clear();
}

void Scheduler::OnEnd(Generation* generation, dsv4::QueueEvent event) {
  const bool cancelled = event.step.finish == DSV4_FINISH_CANCELLED;
  if (!cancelled && !event.failure) generation->Keep(std::move(event.conversation), &queue_.kept());
  event.conversation.reset();
  event.session.reset();
  std::exception_ptr failure = event.failure;
  {
    const std::lock_guard lock(mutex_);
    --open_sessions_;
    if (event.preempted)
      allowed_sessions_ = std::max<size_t>(open_sessions_, 1);
    else if (allowed_sessions_ < most_sessions_)
      ++allowed_sessions_;
    last_request_ = Clock::now();
    running_.remove_if([&](const auto& running) { return running.get() == generation; });
    if (cancelled && cancelled_) failure = std::make_exception_ptr(Stopping());
    closed_.notify_all();
    work_.notify_all();
  }
  DropKept();
  Grant();
  if (event.preempted) {
    const uint64_t group = generation->group();
    if (std::exchange(preempted_, group) != group) metrics_->CountPreemption();
    failure = std::make_exception_ptr(Preempted());
  } else if (cancelled || failure) {
    metrics_->CountEnd(cancelled ? "abort" : "error", SecondsSince(generation->begin), event.stats);
  }
  if (failure) generation->Fail(failure);
}

}  // namespace server
