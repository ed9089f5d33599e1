// SPDX-License-Identifier: Apache-2.0
// Schedules requests. Each running request has sessions of the engine, which the library's queue
// steps together; others wait for them, first come, first served. An engine without requests can be
// suspended; the next request resumes it. An engine that lost its device is resumed, and the
// sessions continue.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/metrics.h"

namespace server {

// Thrown to end a request whose client has disconnected.
struct ClientGone {};

// Ends the generations of a request whose part of the cache others need. It is to begin again.
struct Preempted {};

struct SchedulerLimits {
  size_t requests = 0;  // the most that run and wait
  // The engine is suspended after so long without a request. 0: never.
  std::chrono::seconds suspend_after{0};
  int recoveries = 0;  // how many times the engine may be resumed after it lost its device
};

class Scheduler {
 public:
  // A request's place in the queue for sessions. Destroying it leaves the queue, or gives back the
  // sessions that were not opened. The scheduler must outlive it.
  class Place {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    friend class Scheduler;
    Place(Scheduler* scheduler, size_t sessions, bool again, std::function<void()> on_turn)
        : scheduler_(scheduler), sessions_(sessions), again_(again), on_turn_(std::move(on_turn)) {}

    Scheduler* const scheduler_;
    size_t sessions_;  // that are wanted, or are granted and not open
    const bool again_;
    std::function<void()> on_turn_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    bool waits_ = true;
    std::list<Place*>::iterator entry_;
  };

  // Engine and metrics must outlive this. `on_lost`: called by any thread when the device is lost
  // for good, before any request learns of it.
  Scheduler(const dsv4::Engine& engine, Metrics* metrics, const SchedulerLimits& limits,
            std::function<void()> on_lost);
  // No place and no generation may be left.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Enters the queue for so many sessions. `on_turn` is called once, by any thread and perhaps by
  // this call, when Open can be called; it must not block. Throws an ApiError with status 429 if
  // too many requests wait, unless this one was there before (`again`), and 503 if the server is
  // stopping or the device is lost for good.
  std::unique_ptr<Place> Enter(size_t sessions, bool again, std::function<void()> on_turn);

  // After the turn of `place`: resumes the engine if it is suspended, opens a session for each
  // candidate, and starts to step them. `notify`: see Generation. `is_gone`: asked while the engine
  // is resumed. Throws ClientGone, an ApiError and the library's errors.
  using Generations = std::vector<std::shared_ptr<Generation>>;
  Generations Open(Place* place, const std::vector<Candidate>& candidates,
                   const std::function<void()>& notify, const std::function<bool()>& is_gone);

  // The client of a request without sessions has gone: leaves, and counts it.
  void Abandon(std::unique_ptr<Place> place);

  // Steps the engine once for a token of its own, if no request runs and none has computed a token
  // within this many seconds. Does not wait for it, and does not delay suspension.
  void Probe(double seconds);

  // Accepts no further request.
  void Drain();
  // Also cancels running requests.
  void CancelAll();
  // Whether no request runs or waits.
  bool idle() const;
  // Whether a further request would be refused.
  bool full() const;

  Load load() const;
  bool suspended() const { return engine_.metrics().suspended != 0; }
  // The device is lost: for good, or until the engine is resumed.
  bool lost() const;
  bool given_up() const;  // for good
  // How long the running step has taken; 0 without one, or while the engine is resumed.
  double seconds_in_step() const { return queue_.seconds_in_step(); }
  // The message of the last probe if it failed; "" otherwise. Requests that compute tokens clear
  // it.
  std::string probe_failure() const;

 private:
  using Clock = std::chrono::steady_clock;

  // Waits, a little, for the session that the prompt continues: its last token comes before it is
  // kept.
  void AwaitKept(const Prompt& prompt);
  // Closes kept sessions whose places are wanted.
  void DropKept();
  // Calls on_turn of the places whose turn it is. REQUIRES: the lock is not held.
  void Grant();
  // Resumes an engine that is suspended or lost its device. `failure`: the message of the error
  // that says so. Throws ClientGone, what Engine::Resume throws, and an ApiError with status 503 if
  // the device is lost for good.
  void Wake(const std::function<bool()>& is_gone, const std::string& failure);
  void Recover(const std::string& failure);
  // Calls `compute`; once more if the engine had to be resumed.
  template <class Function>
  void WithEngine(const std::function<bool()>& is_gone, const Function& compute);
  // Suspends the engine unless a session is open. A failure loses nothing.
  void Suspend();
  // For the thread: suspends an idle engine.
  void Run();
  // For the queue's thread.
  void OnEvent(Generation* generation, dsv4::QueueEvent event);
  void CountToken(Generation* generation, const dsv4::QueueEvent& event);
  void OnEnd(Generation* generation, dsv4::QueueEvent event);
  void CountStep();

  const dsv4::Engine& engine_;
  Metrics* const metrics_;
  const SchedulerLimits limits_;
  const std::function<void()> on_lost_;
  const size_t most_sessions_;
  const dsv4::EngineMetrics idle_;  // without sessions; the engine itself uses some of the cache

  std::mutex memory_mutex_;  // held while suspending or resuming; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable work_;    // for the thread
  std::condition_variable closed_;  // sessions have been closed or kept
  std::list<std::shared_ptr<Generation>> running_;
  std::list<Place*> waiting_;  // in order
  size_t open_sessions_ = 0;   // or granted
  // How many may be open: fewer than most_sessions_ after a request was preempted, and one more
  // with each request that ends.
  size_t allowed_sessions_;
  uint64_t preempted_ = 0;    // the group of generations that was last; the queue's thread's
  uint64_t step_tokens_ = 0;  // the engine's, before the step; the queue's thread's
  Clock::time_point last_request_ = Clock::now();
  bool draining_ = false, cancelled_ = false, ending_ = false;
  bool recovering_ = false;
  int recoveries_ = 0;
  std::string loss_;  // the message of the device that is lost for good
  bool probing_ = false, suspending_ = false;
  std::string probe_failure_;
  Clock::time_point last_token_ = Clock::now() - std::chrono::hours(1);
  std::thread thread_;  // if engines are suspended
  dsv4::Queue queue_;
};

}  // namespace server
