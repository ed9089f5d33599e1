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
      kept_(most_sessions_ / 2),
      allowed_sessions_(most_sessions_),
      thread_([this] { Run(); }) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  thread_.join();
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
                                                         place->begin_, notify, &kept_));
    });
    if (!place->again_) metrics_->CountPrompt(generations.back()->stats());
  }
  const std::lock_guard lock(mutex_);
  place->sessions_ -= generations.size();
  ++last_opened_;
  for (const auto& generation : generations) {
    if (cancelled_) generation->Stop();
    running_.push_back({generation, last_opened_});
  }
  work_.notify_all();
  return generations;
}

void Scheduler::AwaitKept(const Prompt& prompt) {
  if (prompt.continues.empty()) return;
  std::unique_lock lock(mutex_);
  closed_.wait_for(lock, std::chrono::milliseconds(200), [&] {
    return std::none_of(running_.begin(), running_.end(), [&](const Running& running) {
      return running.generation->keep_as() == prompt.continues;
    });
  });
}

void Scheduler::DropKept() {
  const auto too_many = [&] {
    const std::lock_guard lock(mutex_);
    return open_sessions_ + kept_.size() > most_sessions_;
  };
  while (too_many() && kept_.TakeOldest()) {
  }
}

void Scheduler::Abandon(std::unique_ptr<Place> place) {
  metrics_->CountEnd("abort", SecondsSince(place->begin_), {});
}

void Scheduler::Probe(double seconds) {
  const std::lock_guard lock(mutex_);
  if (!running_.empty() || SecondsSince(last_token_) < seconds) return;
  probe_wanted_ = true;
  work_.notify_all();
}

void Scheduler::RunProbe() {
  std::string failure;
  try {
    WithEngine({}, [&] {
      dsv4::SessionOptions options;
      options.sampling.max_tokens = 1;
      dsv4::Session session(engine_, options);
      const int32_t token = engine_.info().bos_token;
      session.Sync({&token, 1});
      session.Step();
    });
  } catch (...) {
    failure = CurrentApiError().message;
  }
  const std::lock_guard lock(mutex_);
  probe_failure_ = failure;
  if (failure.empty()) last_token_ = Clock::now();
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
    if (open_sessions_ > 0 || !waiting_.empty()) return;
  }
  // Requests that come now wait in Wake.
  while (kept_.TakeOldest()) {
  }
  try {
    engine_.Suspend();
    Log("idle: the model's memory is given back");
  } catch (const dsv4::Error& error) {
    Log(std::string("the model cannot be suspended: ") + error.what());
    const std::lock_guard lock(mutex_);
    last_request_ = Clock::now();  // until the next try
  }
}

void Scheduler::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

void Scheduler::CancelAll() {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (const Running& running : running_) running.generation->Stop();
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

double Scheduler::seconds_in_step() const {
  const std::lock_guard lock(mutex_);
  return stepping_ && !recovering_ ? SecondsSince(step_begin_) : 0;
}

void Scheduler::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto wanted = [&] { return ending_ || probe_wanted_ || !running_.empty(); };
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
    if (running_.empty() && ending_) return;
    stepping_ = true;
    step_begin_ = Clock::now();
    if (std::exchange(probe_wanted_, false) && running_.empty() && !suspended()) {
      lock.unlock();
      RunProbe();
      lock.lock();
    }
    std::vector<Running*> batch, ended;
    for (Running& running : running_) {
      if (running.generation->stopped() && !cancelled_)
        ended.push_back(&running);
      else if (!running.parked)
        batch.push_back(&running);
    }
    for (const Running* running : ended) {
      metrics_->CountEnd("abort", SecondsSince(running->generation->begin),
                         running->generation->session().stats());
    }
    if (!batch.empty()) {
      lock.unlock();
      const std::vector<Running*> stepped = Step(batch);
      lock.lock();
      ended.insert(ended.end(), stepped.begin(), stepped.end());
    } else if (ended.empty() && !running_.empty() && kept_.size() == 0) {
      ended = MakeRoom();
    }
    const auto is_parked = [](const Running& running) { return running.parked; };
    if (kept_.size() > 0 && std::any_of(running_.begin(), running_.end(), is_parked)) {
      // Their part of the cache is for those that compute.
      lock.unlock();
      while (kept_.TakeOldest()) {
      }
      lock.lock();
      for (Running& running : running_) running.parked = false;
    }
    stepping_ = false;
    if (ended.empty()) continue;
    lock.unlock();
    Close(ended);
    lock.lock();
  }
}

void Scheduler::Close(const std::vector<Running*>& ended) {
  // Only this thread removes entries. What a generation holds goes without the lock.
  std::list<Running> closed;
  for (const Running* running : ended) running->generation->Close(&kept_);
  {
    const std::lock_guard lock(mutex_);
    for (auto entry = running_.begin(); entry != running_.end();) {
      const auto next = std::next(entry);
      if (std::find(ended.begin(), ended.end(), &*entry) != ended.end())
        closed.splice(closed.end(), running_, entry);
      entry = next;
    }
    open_sessions_ -= closed.size();
    for (const Running& running : closed) {
      if (!running.preempted && allowed_sessions_ < most_sessions_) ++allowed_sessions_;
    }
    last_request_ = Clock::now();
    for (Running& running : running_) running.parked = false;
    closed_.notify_all();
  }
  DropKept();
  Grant();
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
    users.push_back(batch[i]->generation.get());
    result_list.push_back(&results[i]);
  }
  dsv4_error* error = nullptr;
  const dsv4_status status =
      dsv4_engine_step(engine_.get(), sessions.data(), batch.size(), &Generation::AddEvent,
                       users.data(), result_list.data(), statuses.data(), errors.data(), &error);
  const uint64_t step_tokens = engine_.metrics().step_tokens;
  if (step_tokens > step_tokens_) metrics_->CountStep(step_tokens - step_tokens_);
  step_tokens_ = step_tokens;
  if (status != DSV4_OK) {
    const dsv4::Error failure = dsv4::detail::TakeError(status, error);
    if (NeedsResume(status)) return Retry(batch, failure);
    for (Running* running : batch) running->generation->Fail(std::make_exception_ptr(failure));
    return batch;
  }
  std::vector<Running*> leaving, lost;
  std::optional<dsv4::Error> loss;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (statuses[i] == DSV4_ERR_OUT_OF_BLOCKS) {
      dsv4_error_free(errors[i]);
      batch[i]->parked = true;
    } else if (NeedsResume(statuses[i])) {
      loss = dsv4::detail::TakeError(statuses[i], errors[i]);
      lost.push_back(batch[i]);
    } else if (statuses[i] != DSV4_OK) {
      Fail(batch[i], statuses[i] == DSV4_ERR_CANCELLED ? "abort" : "error",
           std::make_exception_ptr(dsv4::detail::TakeError(statuses[i], errors[i])));
      leaving.push_back(batch[i]);
    } else if (!Deliver(batch[i], results[i])) {
      leaving.push_back(batch[i]);
    }
  }
  if (loss) {
    const std::vector<Running*> failed = Retry(lost, *loss);
    leaving.insert(leaving.end(), failed.begin(), failed.end());
  }
  return leaving;
}

std::vector<Scheduler::Running*> Scheduler::Retry(const std::vector<Running*>& failed,
                                                  const dsv4::Error& error) {
  try {
    Wake({}, error.what());
    return {};
  } catch (...) {
    for (Running* running : failed) Fail(running, "error", std::current_exception());
  }
  return failed;
}

void Scheduler::Fail(Running* running, const char* reason, std::exception_ptr failure) {
  metrics_->CountEnd(reason, SecondsSince(running->generation->begin),
                     running->generation->session().stats());
  running->generation->Fail(std::move(failure));
}

bool Scheduler::Deliver(Running* running, const dsv4_step_result& result) {
  Generation* generation = running->generation.get();
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
    probe_failure_.clear();
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

std::vector<Scheduler::Running*> Scheduler::MakeRoom() {
  const uint64_t oldest = running_.front().request;
  // The tokens of each of the others.
  std::map<uint64_t, size_t> sizes;
  for (const Running& running : running_) {
    if (running.request != oldest)
      sizes[running.request] += running.generation->session().tokens().size();
  }
  if (sizes.empty()) {
    Running& last = running_.back();
    last.generation->Fail(std::make_exception_ptr(dsv4::Error(
        DSV4_ERR_OUT_OF_BLOCKS, "the cache has no room for another token of this request")));
    return {&last};
  }
  uint64_t largest = 0;
  for (const auto& [request, size] : sizes) {
    if (largest == 0 || size >= sizes[largest]) largest = request;
  }
  std::vector<Running*> leaving;
  for (Running& running : running_) {
    if (running.request != largest) continue;
    running.preempted = true;
    running.generation->Fail(std::make_exception_ptr(Preempted()));
    leaving.push_back(&running);
  }
  allowed_sessions_ = std::max<size_t>(open_sessions_ - leaving.size(), 1);
  metrics_->CountPreemption();
  return leaving;
}

}  // namespace server
