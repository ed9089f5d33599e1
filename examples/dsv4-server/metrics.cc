// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/metrics.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "examples/console/struct_fields.h"

namespace server {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

std::string Heading(const std::string& name, const char* type, const char* help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

// As a label's value in quotation marks.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// Bounds are those of vLLM, so that dashboards show servers beside each other.
std::vector<double> Latencies() {
  return {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
}

std::vector<double> TokenTimes() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
}

std::vector<double> Lengths() {
  return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::Add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::Text(const std::string& name, const std::string& labels) const {
  std::string text;
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    text += name + "_bucket{" + labels + ",le=\"" +
            (i < bounds_.size() ? Number(bounds_[i]) : "+Inf") + "\"} " + std::to_string(count) +
            "\n";
  }
  return text + name + "_sum{" + labels + "} " + Number(sum_) + "\n" + name + "_count{" + labels +
         "} " + std::to_string(count) + "\n";
}

Metrics::Metrics()
    : first_token_({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}),
      next_token_({0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                   0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80}),
      whole_(Latencies()),
      queue_(Latencies()),
      prefill_(Latencies()),
      decode_(Latencies()),
      inference_(Latencies()),
      per_token_(TokenTimes()),
      prompt_lengths_(Lengths()),
      answer_lengths_(Lengths()),
      max_tokens_(Lengths()),
      step_tokens_({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
      candidates_({1, 2, 5, 10, 20}) {}

void Metrics::CountRequest(size_t candidates, int64_t max_tokens) {
  const std::lock_guard lock(mutex_);
  candidates_.Add(static_cast<double>(candidates));
  if (max_tokens > 0) max_tokens_.Add(static_cast<double>(max_tokens));
}

void Metrics::CountStep(uint64_t tokens) {
  const std::lock_guard lock(mutex_);
  step_tokens_.Add(static_cast<double>(tokens));
}

void Metrics::LeaveQueue(double seconds) {
  const std::lock_guard lock(mutex_);
  queue_.Add(seconds);
}

void Metrics::CountPrompt(const dsv4::SessionStats& stats) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += static_cast<uint64_t>(stats.prompt_tokens);
  cached_tokens_ += static_cast<uint64_t>(stats.cached_tokens);
}

void Metrics::CountToken() {
  const std::lock_guard lock(mutex_);
  ++generated_tokens_;
}

void Metrics::FirstToken(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.Add(seconds);
}

void Metrics::NextToken(double seconds) {
  const std::lock_guard lock(mutex_);
  next_token_.Add(seconds);
}

void Metrics::CountEnd(const std::string& reason, double seconds, const dsv4::SessionStats& stats) {
  const std::lock_guard lock(mutex_);
  ++ended_[reason];
  whole_.Add(seconds);
  draft_steps_ += static_cast<uint64_t>(stats.draft_steps);
  drafted_tokens_ += static_cast<uint64_t>(stats.drafted_tokens);
  accepted_tokens_ += static_cast<uint64_t>(stats.accepted_tokens);
  if (stats.prompt_tokens == 0) return;  // it had no session
  prompt_lengths_.Add(static_cast<double>(stats.prompt_tokens));
  answer_lengths_.Add(static_cast<double>(stats.generated_tokens));
  prefill_.Add(stats.prefill_seconds);
  decode_.Add(stats.decode_seconds);
  inference_.Add(stats.prefill_seconds + stats.decode_seconds);
  if (stats.generated_tokens > 1)
    per_token_.Add(stats.decode_seconds / static_cast<double>(stats.generated_tokens - 1));
}

void Metrics::CountReopening(uint64_t count) {
  const std::lock_guard lock(mutex_);
  reopenings_ += count;
}

void Metrics::CountPreemption() {
  const std::lock_guard lock(mutex_);
  ++preemptions_;
}

std::string Metrics::Text(const std::string& model, const Load& load) const {
  const std::lock_guard lock(mutex_);
  const std::string labels = "model_name=\"" + Escaped(model) + "\"";
  std::string text;
  const auto gauge = [&](const char* name, const char* help, const std::string& value) {
    text += Heading(name, "gauge", help) + name + "{" + labels + "} " + value + "\n";
  };
  const auto counter = [&](const char* name, const char* help, uint64_t value) {
    text +=
        Heading(name, "counter", help) + name + "{" + labels + "} " + std::to_string(value) + "\n";
  };
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    text += Heading(name, "histogram", help) + values.Text(name, labels);
  };
  gauge("vllm:num_requests_running", "Requests that have a session.", std::to_string(load.running));
  gauge("vllm:num_requests_waiting", "Requests that wait for one.", std::to_string(load.waiting));
  gauge("vllm:kv_cache_usage_perc", "Share of the cache that sessions hold; 1 is all of it.",
        Number(load.cache_share));
  // Routers read older names of vLLM too.
  gauge("vllm:gpu_cache_usage_perc", "The same as vllm:kv_cache_usage_perc.",
        Number(load.cache_share));
  for (const char* prefix : {"vllm:prefix_cache_", "vllm:gpu_prefix_cache_"}) {
    counter((std::string(prefix) + "queries_total").c_str(), "Tokens of prompts.", prompt_tokens_);
    counter((std::string(prefix) + "hits_total").c_str(),
            "Prompt tokens whose cache rows were reused.", cached_tokens_);
  }
  const std::string cache = "vllm:cache_config_info";
  text += Heading(cache, "gauge", "The cache's blocks of 256 tokens.") + cache + "{" + labels +
          ",block_size=\"256\",num_gpu_blocks=\"" +
          std::to_string(load.engine.compressed_kv_blocks) + "\"} 1\n";
  counter("vllm:num_preemptions_total",
          "Requests that began again, because older ones needed their part of the cache.",
          preemptions_);
  counter("vllm:corrupted_requests_total", "Requests with a logit that is NaN or infinite.",
          load.engine.alarm_nonfinite_logits);
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  counter("vllm:prompt_tokens_cached_total", "Prompt tokens whose cache rows were reused.",
          cached_tokens_);
  counter("vllm:generation_tokens_total", "Tokens that were sampled.", generated_tokens_);
  counter("vllm:spec_decode_num_drafts_total", "Forward passes that verified drafts.",
          draft_steps_);
  counter("vllm:spec_decode_num_draft_tokens_total", "Drafts that were verified.", drafted_tokens_);
  counter("vllm:spec_decode_num_accepted_tokens_total", "Drafts that were accepted.",
          accepted_tokens_);
  counter("dsv4:reopenings_total", "Times that the model was opened again after a failure.",
          reopenings_);
  // All of the engine's, under their names: what grows as a counter, alarms as one metric.
  const std::string alarms = "dsv4:alarms_total";
  std::string raised =
      Heading(alarms, "counter", "What a healthy model does not do: see dsv4_alarms.");
  chat::ForEachField(load.engine, [&](const std::string& name, auto value) {
    constexpr bool kCount = std::is_same_v<decltype(value), uint64_t>;
    const std::string number = kCount ? std::to_string(value) : Number(static_cast<double>(value));
    if (name.starts_with("alarm_")) {
      raised += alarms + "{" + labels + ",alarm=\"" + name.substr(6) + "\"} " + number + "\n";
      return;
    }
    const bool grows = (kCount && name != "second_set_operators") || name.ends_with("_seconds");
    const std::string metric = "dsv4:" + name + (grows ? "_total" : "");
    text += Heading(metric, grows ? "counter" : "gauge", "See dsv4_engine_metrics.") + metric +
            "{" + labels + "} " + number + "\n";
  });
  text += raised;
  const std::string success = "vllm:request_success_total";
  text += Heading(success, "counter", "Requests that ended, by finish_reason.");
  for (const auto& [reason, count] : ended_) {
    text += success + "{" + labels + ",finished_reason=\"" + reason + "\"} " +
            std::to_string(count) + "\n";
  }
  histogram("vllm:time_to_first_token_seconds", "From the request to its first token.",
            first_token_);
  histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", next_token_);
  histogram("vllm:time_per_output_token_seconds", "The same as vllm:inter_token_latency_seconds.",
            next_token_);
  histogram("vllm:request_time_per_output_token_seconds",
            "The mean time of a request's tokens after the first.", per_token_);
  histogram("vllm:request_queue_time_seconds", "From the request to its session.", queue_);
  histogram("vllm:request_prefill_time_seconds", "Of steps up to a request's first token.",
            prefill_);
  histogram("vllm:request_decode_time_seconds", "Of a request's later steps.", decode_);
  histogram("vllm:request_inference_time_seconds", "Of all of a request's steps.", inference_);
  histogram("vllm:request_prompt_tokens", "Tokens of a request's prompt.", prompt_lengths_);
  histogram("vllm:request_generation_tokens", "Tokens of a request's answer.", answer_lengths_);
  histogram("vllm:request_params_max_tokens", "The most tokens that a request asks for.",
            max_tokens_);
  histogram("vllm:request_params_n", "Candidates that a request asks for.", candidates_);
  histogram("vllm:iteration_tokens_total", "Tokens of prompts and answers in a step.",
            step_tokens_);
  histogram("vllm:e2e_request_latency_seconds", "From the request to its last token.", whole_);
  return text;
}

}  // namespace server
