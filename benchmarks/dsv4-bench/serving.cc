// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/serving.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "benchmarks/dsv4-bench/statistics.h"
#include "examples/console/failure.h"
#include "examples/console/terminal.h"
#include "lib/base/mutex.h"

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
      : subject_(subject), test_(test), temperature_(temperature) {}

  // Answers all requests; returns the seconds that it took.
  double Run() {
    times_.resize(static_cast<size_t>(test_.requests));
    const Clock::time_point start = Clock::now();
    std::vector<std::thread> threads;
    try {
      for (int32_t i = 0; i < std::min(test_.concurrency, test_.requests); ++i)
        threads.emplace_back([this] { Work(); });
    } catch (...) {
      Fail(std::current_exception());
    }
    for (std::thread& thread : threads) thread.join();
    const double seconds = Seconds(start, Clock::now());
    const dsv4::MutexLock lock(&mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return seconds;
  }

  const std::vector<RequestTimes>& times() const { return times_; }
  Speculation speculation() const {
    const dsv4::MutexLock lock(&mutex_);
    return speculation_;
  }
  uint64_t cache_bytes() const {
    const dsv4::MutexLock lock(&mutex_);
    return cache_bytes_;
  }

 private:
  void Work() {
    try {
      for (int32_t request; !stop_ && (request = next_++) < test_.requests;) Answer(request);
    } catch (...) {
      Fail(std::current_exception());
    }
  }

  void Fail(std::exception_ptr failure) {
    const dsv4::MutexLock lock(&mutex_);
    if (failure_ == nullptr) failure_ = std::move(failure);
    stop_ = true;
  }

  bool Stops() const { return chat::Interrupted() || stop_; }

  void Answer(int32_t request) {
    const std::vector<int32_t> prompt =
        subject_.Prompt(static_cast<uint64_t>(request), test_.prompt);
    RequestTimes& times = times_[static_cast<size_t>(request)];
    const Clock::time_point start = Clock::now();
    dsv4::Session session = subject_.OpenSession(temperature_);
    session.Sync(prompt);
    // Apart from the last token, for an interrupt to end it; a step then computes that one, and
    // begins to draft.
    if (prompt.size() > 1) {
      session.Prefill(static_cast<int64_t>(prompt.size()) - 1,
                      [this](const dsv4::ProgressReport&) { return !Stops(); });
    }
    Clock::time_point last = start;
    for (int64_t token = 0; token < test_.generated; ++token) {
      if (Stops()) throw Failure{chat::kInterrupted, ""};
      session.Step();
      const Clock::time_point now = Clock::now();
      if (token == 0) {
        times.first_token_seconds = Seconds(start, now);
      } else {
        times.between_seconds.push_back(Seconds(last, now));
      }
      last = now;
    }
    times.total_seconds = Seconds(start, last);
    const dsv4::SessionStats stats = session.stats();
    const dsv4::MutexLock lock(&mutex_);
    speculation_.Add(stats);
    cache_bytes_ = std::max(cache_bytes_, stats.cache_bytes);
  }

  const Subject& subject_;
  ServingTest test_;
  float temperature_;
  std::atomic<int32_t> next_{0};
  std::atomic<bool> stop_{false};
  std::vector<RequestTimes> times_;  // each written by the thread that answers the request
  mutable dsv4::Mutex mutex_;
  Speculation speculation_ ABSL_GUARDED_BY(mutex_);
  uint64_t cache_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
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
