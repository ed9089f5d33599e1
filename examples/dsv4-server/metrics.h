// SPDX-License-Identifier: Apache-2.0
// Counts and times of the server, in Prometheus' text format. Names are those of vLLM where one
// fits. All functions may be called by several threads.
#pragma once

#include <dsv4/dsv4.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace server {

class Histogram {
 public:
  // `bounds` rise; a last one without a limit is added.
  explicit Histogram(std::vector<double> bounds);
  void Add(double value);
  // The lines of one histogram. `labels`: `name="value"`.
  std::string Text(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
};

// Gauges: the present state.
struct Load {
  size_t running = 0, waiting = 0;
  double cache_share = 0;  // of the fullest pool of the cache, held by sessions
  dsv4::EngineMetrics engine DSV4_ENGINE_METRICS_INIT;
};

class Metrics {
 public:
  Metrics();

  // A request for so many candidates; `max_tokens`: 0 if it does not say.
  void CountRequest(size_t candidates, int64_t max_tokens);
  void CountPrompt(const dsv4::SessionStats& stats);
  // A request has its sessions after so long in the queue.
  void LeaveQueue(double seconds);
  void CountToken();
  // A step of so many tokens of prompts and answers.
  void CountStep(uint64_t tokens);
  void FirstToken(double seconds);
  void NextToken(double seconds);
  // A request that was answered; `reason` is its finish_reason, or "abort".
  void CountEnd(const std::string& reason, double seconds, const dsv4::SessionStats& stats);

  // A request gave its part of the cache to older ones, and begins again.
  void CountPreemption();
  // The model was opened again, here or in the worker before.
  void CountReopening(uint64_t count = 1);

  std::string Text(const std::string& model, const Load& load) const;

 private:
  mutable std::mutex mutex_;
  uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  uint64_t reopenings_ = 0, preemptions_ = 0;
  uint64_t draft_steps_ = 0, drafted_tokens_ = 0, accepted_tokens_ = 0;
  std::map<std::string, uint64_t> ended_;
  Histogram first_token_, next_token_, whole_, queue_;
  Histogram prefill_, decode_, inference_, per_token_;                    // seconds of a request
  Histogram prompt_lengths_, answer_lengths_, max_tokens_, step_tokens_;  // tokens
  Histogram candidates_;
};

}  // namespace server
