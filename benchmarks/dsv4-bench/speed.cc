// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/speed.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "benchmarks/clock.h"
#include "benchmarks/dsv4-bench/statistics.h"
#include "examples/console/failure.h"
#include "examples/console/terminal.h"

namespace bench {
namespace {

using chat::Failure;
using dsv4::Clock;
using dsv4::SecondsSince;

constexpr int64_t kWarmupPrompt = 512, kWarmupGenerated = 16;
constexpr int kSamplings = 32;

// Past the end of a turn, too: what comes then takes as long.
void Step(dsv4::Session* session) {
  if (chat::Interrupted()) throw Failure{chat::kInterrupted, ""};
  session->Step();
}

void Prefill(dsv4::Session* session, int64_t tokens) {
  if (tokens > 0) session->Prefill(tokens);
}

// One test on one engine: the context before it is computed once, and loaded for each repetition.
class Speed {
 public:
  Speed(const Subject& subject, const SpeedTest& test, float temperature)
      : subject_(subject), test_(test), temperature_(temperature) {
    if (test.depth == 0) return;
    dsv4::Session session = subject.OpenSession(temperature);
    const chat::CancelOnInterrupt cancel(session.get());
    session.Sync(subject.Prompt(0, test.depth));
    session.Prefill();
    depth_ = session.SaveMemory();
  }

  SpeedSample Repeat(int64_t prompt, int64_t generated) {
    // The last one's rows go back first.
    session_.reset();
    session_.emplace(subject_.OpenSession(temperature_));
    dsv4::Session* session = &*session_;
    const chat::CancelOnInterrupt cancel(session->get());
    if (test_.depth > 0) session->LoadMemory(depth_);
    // Without a prompt the generation begins with a token whose row is computed by its first step.
    const int64_t timed = std::max<int64_t>(prompt, 1);
    const int64_t pending = session->Sync(subject_.Prompt(0, test_.depth + timed)).pending_tokens;
    Prefill(session, pending - timed);

    SpeedSample sample;
    if (prompt > 0) {
      const Clock::time_point start = Clock::now();
      if (generated == 0) {
        Prefill(session, prompt);
      } else {
        Step(session);
      }
      sample.prefill_seconds = SecondsSince(start);
    }
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < generated; ++i) Step(session);
    if (generated > 0) sample.decode_seconds = SecondsSince(start);
    return sample;
  }

  // Of the last repetition.
  dsv4::SessionStats stats() const { return session_->stats(); }

  // The time of a step that computes nothing: the choice of a token from available logits.
  double SamplingSeconds() {
    session_->Prefill();
    std::vector<double> seconds;
    for (int i = 0; i < kSamplings; ++i) {
      dsv4::Session fork = session_->Fork();
      const Clock::time_point start = Clock::now();
      Step(&fork);
      seconds.push_back(SecondsSince(start));
    }
    return Percentile(seconds, 50);
  }

 private:
  const Subject& subject_;
  SpeedTest test_;
  float temperature_;
  std::vector<uint8_t> depth_;  // a saved session
  std::optional<dsv4::Session> session_;
};

// The mean of tokens per second, or missing without tokens.
void AddRate(Record* record, const char* name, int64_t tokens, const std::vector<double>& seconds) {
  if (tokens == 0) return record->Missing(name);
  std::vector<double> rates;
  for (const double time : seconds) rates.push_back(static_cast<double>(tokens) / time);
  record->Real(name, Mean(rates));
}

}  // namespace

std::string SpeedTest::name() const {
  std::string name;
  if (prompt > 0) name = "pp" + std::to_string(prompt);
  if (generated > 0) name += (prompt > 0 ? "+tg" : "tg") + std::to_string(generated);
  if (depth > 0) name += " @ d" + std::to_string(depth);
  return name;
}

void AddTo(Record* record, const SpeedTest& test, const std::vector<SpeedSample>& samples,
           int64_t kvcache_bytes) {
  std::vector<double> nanoseconds, rates, prefill, decode;
  for (const SpeedSample& sample : samples) {
    const double seconds = sample.prefill_seconds + sample.decode_seconds;
    nanoseconds.push_back(seconds * 1e9);
    rates.push_back(static_cast<double>(test.prompt + test.generated) / seconds);
    prefill.push_back(sample.prefill_seconds);
    decode.push_back(sample.decode_seconds);
  }
  record->Text("test", test.name());
  record->Integer("n_prompt", test.prompt);
  record->Integer("n_gen", test.generated);
  record->Integer("n_depth", test.depth);
  record->Integer("repetitions", static_cast<int64_t>(samples.size()));
  record->Real("avg_ns", Mean(nanoseconds));
  record->Real("stddev_ns", SampleDeviation(nanoseconds));
  record->Real("avg_ts", Mean(rates));
  record->Real("stddev_ts", SampleDeviation(rates));
  record->Integer("ctx_tokens", test.depth + test.prompt);
  record->Integer("prefill_tokens", test.prompt);
  AddRate(record, "prefill_tps", test.prompt, prefill);
  record->Integer("gen_tokens", test.generated);
  AddRate(record, "gen_tps", test.generated, decode);
  record->Integer("kvcache_bytes", kvcache_bytes);
  record->List("samples_ns", nanoseconds);
  record->List("samples_ts", rates);
}

Record MeasureSpeed(const Subject& subject, const SpeedTest& test, float temperature,
                    const Options& options) {
  Speed speed(subject, test, temperature);
  if (options.warmup)
    speed.Repeat(std::min(test.prompt, kWarmupPrompt), std::min(test.generated, kWarmupGenerated));
  std::vector<SpeedSample> samples;
  Speculation speculation;
  for (int32_t i = 0; i < options.repetitions; ++i) {
    samples.push_back(speed.Repeat(test.prompt, test.generated));
    speculation.Add(speed.stats());
  }
  const auto kvcache_bytes = static_cast<int64_t>(speed.stats().cache_bytes);
  Record record;
  subject.AddTo(&record, temperature);
  subject.AddExpertReads(&record);
  speculation.AddTo(&record, subject.info().max_draft_tokens);
  AddTo(&record, test, samples, kvcache_bytes);
  record.Real("sample_us", speed.SamplingSeconds() * 1e6);
  return record;
}

}  // namespace bench
