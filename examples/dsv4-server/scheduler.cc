// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/common_request.h"

namespace server {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::exception_ptr FailureOf(dsv4_status status, dsv4_error* error) {
  return std::make_exception_ptr(dsv4::detail::TakeError(status, error));
}

}  // namespace

Scheduler::Scheduler(const dsv4::Engine& engine, Metrics* metrics, const SchedulerLimits& limits)
    : engine_(engine),
      metrics_(metrics),
      limits_(limits),
      most_sessions_(static_cast<size_t>(engine.info().max_sessions)),
      idle_(engine.metrics()),
      thread_([this] { Run(); }) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  thread_.join();
}

Scheduler::Generations Scheduler::Open(const std::vector<Candidate>& candidates,
                                       const std::function<bool()>& client_is_gone,
                                       Purpose purpose) {
  const Clock::time_point begin = Clock::now();
  WaitForSessions(candidates.size(), client_is_gone);
  size_t unopened = candidates.size();
  Generations generations;
  generations.reserve(candidates.size());
  try {
    Wake(client_is_gone);
    for (const Candidate& candidate : candidates) {
      auto* generation = new Generation(engine_, *candidate.prompt, candidate.seed, begin);
      --unopened;
      generations.emplace_back(generation,
                               [this, purpose](Generation* left) { Leave(left, purpose); });
      metrics_->CountPrompt(generation->stats());
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    open_sessions_ -= unopened;
    left_.notify_all();
    work_.notify_all();
    throw;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& generation : generations) {
    if (cancelled_) generation->session().Stop();
    running_.push_back({generation.get(), false, false, false, Clock::now()});
  }
  work_.notify_all();
  return generations;
}

void Scheduler::WaitForSessions(size_t count, const std::function<bool()>& client_is_gone) {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  if (draining_) throw Stopping();
  if (open_sessions_ + waiting_.size() >= limits_.requests)
    throw ApiError{429, "rate_limit_error",
                   std::to_string(limits_.requests) + " requests are running or waiting", "",
                   "too_many_requests"};
  const auto ticket = waiting_.insert(waiting_.end(), next_ticket_++);
  const auto my_turn = [&] {
    return waiting_.begin() == ticket && open_sessions_ + count <= most_sessions_;
  };
  bool gone = false;
  while (!gone && !cancelled_ && !left_.wait_for(lock, 50ms, my_turn)) gone = client_is_gone();
  waiting_.erase(ticket);
  left_.notify_all();
  if (gone) throw ClientGone();
  if (cancelled_) throw Stopping();
  open_sessions_ += count;
}

void Scheduler::Wake(const std::function<bool()>& client_is_gone) {
  const std::lock_guard memory(memory_mutex_);
  if (!suspended()) return;
  bool gone = false;
  try {
    engine_.Resume([&](const dsv4::ProgressReport&) {
      gone = client_is_gone();
      const std::lock_guard lock(mutex_);
      return !gone && !cancelled_;
    });
  } catch (const dsv4::Error&) {
    if (gone) throw ClientGone();
    throw;
  }
  std::fprintf(stderr, "dsv4-server: the model is in memory again\n");
}

void Scheduler::Suspend() {
  const std::lock_guard memory(memory_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (open_sessions_ > 0 || !waiting_.empty()) return;
  }
  // Requests that come now wait in Wake.
  try {
    engine_.Suspend();
    std::fprintf(stderr, "dsv4-server: idle: the model's memory is given back\n");
  } catch (const dsv4::Error& error) {
    std::fprintf(stderr, "dsv4-server: the model cannot be suspended: %s\n", error.what());
    const std::lock_guard lock(mutex_);
    last_request_ = Clock::now();  // until the next try
  }
}

void Scheduler::Leave(Generation* generation, Purpose purpose) {
  generation->session().Stop();
  {
    std::unique_lock lock(mutex_);
    const auto is_it = [&](const Running& running) { return running.generation == generation; };
    for (Running& running : running_) running.abandoned |= is_it(running);
    work_.notify_all();
    left_.wait(lock, [&] { return std::none_of(running_.begin(), running_.end(), is_it); });
  }
  delete generation;
  const std::lock_guard lock(mutex_);
  --open_sessions_;
  if (purpose == Purpose::kRequest) last_request_ = Clock::now();
  left_.notify_all();
  work_.notify_all();
}

void Scheduler::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Scheduler::CancelAll() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (const Running& running : running_) running.generation->session().Stop();
}

bool Scheduler::idle() const {
  const std::lock_guard lock(mutex_);
  return open_sessions_ == 0 && waiting_.empty();
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

double Scheduler::seconds_since_token() const {
  const std::lock_guard lock(mutex_);
  return SecondsSince(last_token_);
}

void Scheduler::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto wanted = [&] { return ending_ || !running_.empty(); };
    while (!wanted()) {
      const Clock::time_point end = last_request_ + limits_.suspend_after;
      if (limits_.suspend_after.count() == 0 || open_sessions_ > 0 || suspended()) {
        work_.wait(lock);
      } else if (Clock::now() < end) {
        work_.wait_until(lock, end);
      } else {
        lock.unlock();
        Suspend();
        lock.lock();
      }
    }
    if (running_.empty()) return;
    std::vector<Running*> batch, leaving;
    for (Running& running : running_) {
      if (running.abandoned)
        leaving.push_back(&running);
      else if (!running.parked)
        batch.push_back(&running);
    }
    for (const Running* running : leaving) {
      metrics_->CountEnd("abort", SecondsSince(running->generation->begin),
                         running->generation->session().stats());
    }
    if (batch.empty() && leaving.empty()) {
      MakeRoom();
      continue;
    }
    if (!batch.empty()) {
      lock.unlock();
      const std::vector<Running*> ended = Step(batch);
      lock.lock();
      leaving.insert(leaving.end(), ended.begin(), ended.end());
    }
    for (const Running* running : leaving) Remove(running);
    if (leaving.empty()) continue;
    for (Running& running : running_) running.parked = false;
    left_.notify_all();
  }
}

std::vector<Scheduler::Running*> Scheduler::Step(const std::vector<Running*>& batch) {
  std::vector<dsv4_session*> sessions;
  std::vector<void*> users;
  std::vector<dsv4_step_result> results(batch.size(), dsv4_step_result DSV4_STEP_RESULT_INIT);
  std::vector<dsv4_step_result*> result_list;
  std::vector<dsv4_status> statuses(batch.size());
  std::vector<dsv4_error*> errors(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    sessions.push_back(batch[i]->generation->session().get());
    users.push_back(batch[i]->generation);
    result_list.push_back(&results[i]);
  }
  dsv4_error* error = nullptr;
  const dsv4_status status = dsv4_engine_step_events(
      engine_.get(), sessions.data(), batch.size(), &Generation::AddEvent, users.data(),
      result_list.data(), statuses.data(), errors.data(), &error);
  if (status != DSV4_OK) {
    const std::exception_ptr failure = FailureOf(status, error);
    for (Running* running : batch) running->generation->Fail(failure);
    return batch;
  }
  std::vector<Running*> leaving;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (statuses[i] == DSV4_ERR_OUT_OF_BLOCKS) {
      dsv4_error_free(errors[i]);
      batch[i]->parked = true;
    } else if (statuses[i] != DSV4_OK) {
      metrics_->CountEnd(statuses[i] == DSV4_ERR_CANCELLED ? "abort" : "error",
                         SecondsSince(batch[i]->generation->begin),
                         batch[i]->generation->session().stats());
      batch[i]->generation->Fail(FailureOf(statuses[i], errors[i]));
      leaving.push_back(batch[i]);
    } else if (!Deliver(batch[i], results[i])) {
      leaving.push_back(batch[i]);
    }
  }
  return leaving;
}

bool Scheduler::Deliver(Running* running, const dsv4_step_result& result) {
  Generation* generation = running->generation;
  if (result.token >= 0) {
    metrics_->CountToken();
    if (running->started)
      metrics_->NextToken(SecondsSince(running->last_token));
    else
      metrics_->FirstToken(SecondsSince(generation->begin));
    running->started = true;
    running->last_token = Clock::now();
    const std::lock_guard lock(mutex_);
    last_token_ = running->last_token;
  }
  try {
    if (result.finish != DSV4_FINISH_NONE)
      metrics_->CountEnd(FinishReason(result.finish), SecondsSince(generation->begin),
                         generation->session().stats());
    return generation->Deliver(result);
  } catch (...) {
    generation->Fail(std::current_exception());
    return false;
  }
}

void Scheduler::Remove(const Running* running) {
  running_.remove_if([&](const Running& other) { return &other == running; });
}

void Scheduler::MakeRoom() {
  Running& last = running_.back();
  last.generation->Fail(std::make_exception_ptr(dsv4::Error(
      DSV4_ERR_OUT_OF_BLOCKS, "the cache has no room for another token of this request")));
  running_.pop_back();
  for (Running& running : running_) running.parked = false;
  left_.notify_all();
}

}  // namespace server
