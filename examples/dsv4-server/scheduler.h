// SPDX-License-Identifier: Apache-2.0
// Who computes when. One thread steps all sessions together. As many requests as the engine has
// sessions are stepped; others wait for one, first come, first served. An engine without requests
// can give its memory back; the next request takes it again.
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
  size_t requests = 0;  // that may run and wait
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

  // Waits for as many sessions as there are candidates, at most the engine's; opens them and begins
  // to step them, after it has resumed the engine if that is suspended. Each is stopped and closed
  // with the last copy of its pointer. A probe does not put off the suspension. Throws an ApiError
  // with status 429 when too many requests wait and 503 when the server stops, ClientGone, and the
  // library's errors.
  using Generations = std::vector<std::shared_ptr<Generation>>;
  enum class Purpose { kRequest, kProbe };
  Generations Open(const std::vector<Candidate>& candidates,
                   const std::function<bool()>& client_is_gone,
                   Purpose purpose = Purpose::kRequest);

  // No further request is accepted.
  void Drain();
  // Those that run are cancelled, too.
  void CancelAll();
  // Whether no request runs or waits.
  bool idle() const;

  Load load() const;
  bool suspended() const { return engine_.metrics().suspended != 0; }
  // Seconds since a token was computed; a large number when none ever was.
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
  // Suspends the engine unless a session is open. Nothing is lost where that fails.
  void Suspend();
  void Run();
  // Of the thread: a pass over `batch`, entries of running_ that nothing else touches meanwhile.
  // Returns those that are to leave.
  std::vector<Running*> Step(const std::vector<Running*>& batch);
  bool Deliver(Running* running, const dsv4_step_result& result);
  // Takes `running` out of running_, whose lock is held.
  void Remove(const Running* running);
  // When the cache holds no further token of any session, the last one makes room.
  void MakeRoom();

  const dsv4::Engine& engine_;
  Metrics* const metrics_;
  const SchedulerLimits limits_;
  const size_t most_sessions_;
  const dsv4::EngineMetrics idle_;  // without sessions: the engine itself holds some of the cache

  std::mutex memory_mutex_;  // of who suspends or resumes; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable work_;  // for the thread
  std::condition_variable left_;  // somebody has left
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
