// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/serving.h"

#include <algorithm>
#include <chrono>
#include <dsv4/queue.hpp>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "benchmarks/dsv4-bench/statistics.h"
#include "examples/console/failure.h"
#include "examples/console/terminal.h"

namespace bench {
namespace {

using chat::Failure;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// All requests of one test.
class Serving {
 public:
  Serving(const Subject& subject, const ServingTest& test, float temperature)
      : subject_(subject), test_(test), temperature_(temperature), queue_(subject.engine()) {}

  // Answers all requests; returns the seconds that it took.
  double Run() {
    times_.resize(static_cast<size_t>(test_.requests));
    const Clock::time_point start = Clock::now();
    while (next_ < std::min(test_.concurrency, test_.requests)) Begin();
    while (!running_.empty()) {
      std::optional<dsv4::QueueEvent> event = queue_.Next(std::chrono::milliseconds(100));
      if (chat::Interrupted()) throw Failure{chat::kInterrupted, ""};
      if (event) Take(std::move(*event));
    }
    return Seconds(start, Clock::now());
  }

  const std::vector<RequestTimes>& times() const { return times_; }
  const Speculation& speculation() const { return speculation_; }
  uint64_t cache_bytes() const { return cache_bytes_; }

 private:
  struct Running {
    RequestTimes* times;
    Clock::time_point start, last;
  };

  void Begin() {
    const auto request = static_cast<size_t>(next_++);
    const std::vector<int32_t> prompt = subject_.Prompt(request, test_.prompt);
    const Clock::time_point now = Clock::now();
    dsv4::Session session = subject_.OpenSession(temperature_, test_.generated);
    session.Sync(prompt);
    Submit(std::move(session), {&times_[request], now, now});
  }

  void Submit(dsv4::Session session, const Running& running) {
    dsv4::QueueRequest request;
    request.session = std::move(session);
    running_.emplace(queue_.Submit(std::move(request)), running);
  }

  void Take(dsv4::QueueEvent event) {
    if (event.failure) std::rethrow_exception(event.failure);
    const auto at = running_.find(event.ticket);
    Running& running = at->second;
    if (event.type == dsv4::QueueEvent::kToken) {
      if (event.stats.generated_tokens == 1) {
        running.times->first_token_seconds = Seconds(running.start, event.time);
      } else {
        running.times->between_seconds.push_back(Seconds(running.last, event.time));
      }
      running.last = event.time;
    } else if (event.type == dsv4::QueueEvent::kEnded) {
      const Running ended = running;
      running_.erase(at);
      // The model's end token does not end a request.
      if (event.step.finish != DSV4_FINISH_LENGTH) return Submit(std::move(*event.session), ended);
      ended.times->total_seconds = Seconds(ended.start, ended.last);
      speculation_.Add(event.stats);
      cache_bytes_ = std::max(cache_bytes_, event.stats.cache_bytes);
      event.session.reset();
      if (next_ < test_.requests) Begin();
    }
  }

  const Subject& subject_;
  ServingTest test_;
  float temperature_;
  int32_t next_ = 0;  // request
  std::vector<RequestTimes> times_;
  std::map<uint64_t, Running> running_;
  Speculation speculation_;
  uint64_t cache_bytes_ = 0;
  dsv4::Queue queue_;
};

// mean_NAME_ms, median, std and p99 of values in seconds.
void AddLatency(Record* record, const std::string& name, const std::vector<double>& seconds) {
  std::vector<double> milliseconds;
  for (const double value : seconds) milliseconds.push_back(value * 1e3);
  const auto add = [&](const char* statistic, double value) {
    const std::string field = statistic + ("_" + name) + "_ms";
    if (seconds.empty()) return record->Missing(field);
    record->Real(field, value);
  };
  add("mean", Mean(milliseconds));
  add("median", Percentile(milliseconds, 50));
  add("std", Deviation(milliseconds));
  add("p99", Percentile(milliseconds, 99));
}

}  // namespace

std::string ServingTest::name() const {
  return "pp" + std::to_string(prompt) + "+tg" + std::to_string(generated) + " x" +
         std::to_string(concurrency);
}

void AddTo(Record* record, const ServingTest& test, const std::vector<RequestTimes>& requests,
           double seconds) {
  std::vector<double> ttft, tpot, itl, e2el, input_lens, output_lens;
  std::string itls;  // a list of lists
  for (const RequestTimes& times : requests) {
    ttft.push_back(times.first_token_seconds);
    e2el.push_back(times.total_seconds);
    itl.insert(itl.end(), times.between_seconds.begin(), times.between_seconds.end());
    if (!times.between_seconds.empty()) {
      tpot.push_back((times.total_seconds - times.first_token_seconds) /
                     static_cast<double>(times.between_seconds.size()));
    }
    input_lens.push_back(static_cast<double>(test.prompt));
    output_lens.push_back(static_cast<double>(times.between_seconds.size() + 1));
    itls += (itls.empty() ? "[" : ", ") + JsonList(times.between_seconds);
  }
  const auto completed = static_cast<int64_t>(requests.size());
  const int64_t input = completed * test.prompt, output = completed * test.generated;
  const auto per_second = [&](int64_t count) { return static_cast<double>(count) / seconds; };
  record->Text("test", test.name());
  record->Integer("n_prompt", test.prompt);
  record->Integer("n_gen", test.generated);
  record->Integer("n_depth", 0);
  record->Integer("num_prompts", test.requests);
  record->Text("request_rate", "inf");
  record->Integer("max_concurrency", test.concurrency);
  record->Real("duration", seconds);
  record->Integer("completed", completed);
  record->Integer("total_input_tokens", input);
  record->Integer("total_output_tokens", output);
  record->Real("request_throughput", per_second(completed));
  record->Real("output_throughput", per_second(output));
  record->Real("total_token_throughput", per_second(input + output));
  AddLatency(record, "ttft", ttft);
  AddLatency(record, "tpot", tpot);
  AddLatency(record, "itl", itl);
  AddLatency(record, "e2el", e2el);
  record->List("input_lens", input_lens);
  record->List("output_lens", output_lens);
  record->List("ttfts", ttft);
  record->List("itls", itls.empty() ? "[]" : itls + "]");
}

Record MeasureServing(const Subject& subject, const ServingTest& test, float temperature,
                      const Options& options) {
  if (options.warmup) {
    ServingTest warmup = test;
    warmup.requests = std::min(test.concurrency, test.requests);
    warmup.generated = std::min<int64_t>(test.generated, 16);
    Serving(subject, warmup, temperature).Run();
  }
  Serving serving(subject, test, temperature);
  const double seconds = serving.Run();
  Record record;
  subject.AddTo(&record, temperature);
  subject.AddExpertReads(&record);
  serving.speculation().AddTo(&record, subject.info().max_draft_tokens);
  AddTo(&record, test, serving.times(), seconds);
  record.Integer("kvcache_bytes", static_cast<int64_t>(serving.cache_bytes()));
  return record;
}

}  // namespace bench
