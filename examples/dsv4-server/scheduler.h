// SPDX-License-Identifier: Apache-2.0
// Schedules requests. One thread steps all sessions together. Each running request has a session of
// the engine; others wait for one, first come, first served. An engine without requests can be
// suspended; the next request resumes it.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/metrics.h"

namespace server {

struct SchedulerLimits {
  size_t requests = 0;  // the most that run and wait
  // The engine is suspended after so long without a request. 0: never.
  std::chrono::seconds suspend_after{0};
};

class Scheduler {
 public:
  // Engine and metrics must outlive this.
  Scheduler(const dsv4::Engine& engine, Metrics* metrics, const SchedulerLimits& limits);
  // No generation may be left.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Waits for a session for each candidate, resumes the engine if it is suspended, opens the
  // sessions and starts to step them. A session is stopped and closed with the last copy of its
  // pointer. A probe does not delay suspension. Throws an ApiError with status 429 if too many
  // requests wait and 503 if the server is stopping, ClientGone, and the library's errors.
  using Generations = std::vector<std::shared_ptr<Generation>>;
  enum class Purpose { kRequest, kProbe };
  Generations Open(const std::vector<Candidate>& candidates,
                   const std::function<bool()>& client_is_gone,
                   Purpose purpose = Purpose::kRequest);

  // Accepts no further request.
  void Drain();
  // Also cancels running requests.
  void CancelAll();
  // Whether no request runs or waits.
  bool idle() const;

  Load load() const;
  bool suspended() const { return engine_.metrics().suspended != 0; }
  // Seconds since a token was computed; a large number if none was.
  double seconds_since_token() const;

 private:
  struct Running {
    Generation* generation;
    bool parked;     // the cache was full: continues when another request has ended
    bool abandoned;  // its request has gone
    bool started;    // has a token
    std::chrono::steady_clock::time_point last_token;
  };

  void WaitForSessions(size_t count, const std::function<bool()>& client_is_gone);
  void Leave(Generation* generation, Purpose purpose);
  // Resumes a suspended engine. Throws ClientGone and what Engine::Resume throws.
  void Wake(const std::function<bool()>& client_is_gone);
  // Suspends the engine unless a session is open. A failure loses nothing.
  void Suspend();
  void Run();
  // For the thread: steps `batch`, entries of running_ that no other thread uses meanwhile. Returns
  // the entries that have ended.
  std::vector<Running*> Step(const std::vector<Running*>& batch);
  bool Deliver(Running* running, const dsv4_step_result& result);
  // Removes `running` from running_. REQUIRES: the lock is held.
  void Remove(const Running* running);
  // If the cache has no room for a token of any session, ends the newest one.
  void MakeRoom();

  const dsv4::Engine& engine_;
  Metrics* const metrics_;
  const SchedulerLimits limits_;
  const size_t most_sessions_;
  const dsv4::EngineMetrics idle_;  // without sessions; the engine itself uses some of the cache

  std::mutex memory_mutex_;  // held while suspending or resuming; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable work_;  // for the thread
  std::condition_variable left_;  // a request has ended
  std::list<Running> running_;
  std::list<int> waiting_;  // tickets, in order
  int next_ticket_ = 0;
  size_t open_sessions_ = 0;
  std::chrono::steady_clock::time_point last_request_ = std::chrono::steady_clock::now();
  bool draining_ = false, cancelled_ = false, ending_ = false;
  std::chrono::steady_clock::time_point last_token_ =
      std::chrono::steady_clock::now() - std::chrono::hours(1);
  std::thread thread_;
};

}  // namespace server
