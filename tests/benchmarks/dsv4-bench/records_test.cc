// SPDX-License-Identifier: Apache-2.0
// What records say of samples, against calculations by hand.
#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/dsv4-bench/record.h"
#include "benchmarks/dsv4-bench/serving.h"
#include "benchmarks/dsv4-bench/speed.h"
#include "tests/support/catch.h"

namespace bench {
namespace {

double Number(const Record& record, const char* name) {
  INFO(name);
  const Record::Field* field = record.Find(name);
  REQUIRE(field != nullptr);
  REQUIRE_FALSE(field->missing);
  return std::stod(field->value);
}

std::string Text(const Record& record, const char* name) {
  const Record::Field* field = record.Find(name);
  return field == nullptr ? "none" : field->missing ? "missing" : field->value;
}

TEST_CASE("tests are named as in llama-bench") {
  REQUIRE(SpeedTest{.prompt = 512}.name() == "pp512");
  REQUIRE(SpeedTest{.generated = 128}.name() == "tg128");
  REQUIRE(SpeedTest{.prompt = 512, .generated = 128, .depth = 4096}.name() ==
          "pp512+tg128 @ d4096");
  REQUIRE(SpeedTest{.prompt = 2, .generated = 3, .depth = 4}.context_tokens() == 11);
}

// Two repetitions of 100 tokens of prompt and 10 generated: 1 s + 1 s, and 2 s + 0.5 s.
TEST_CASE("a record of speed: rates, deviations and the fields of ds4-bench") {
  const SpeedTest test{.prompt = 100, .generated = 10, .depth = 50};
  Record record;
  AddTo(&record, test, {{1, 1}, {2, 0.5}}, 777);
  REQUIRE(Number(record, "n_prompt") == 100);
  REQUIRE(Number(record, "n_gen") == 10);
  REQUIRE(Number(record, "n_depth") == 50);
  REQUIRE(Number(record, "repetitions") == 2);
  REQUIRE(Number(record, "avg_ns") == 2.25e9);
  REQUIRE(Number(record, "stddev_ns") == Approx(353553390.593274));  // sqrt(2 * 0.25^2) s
  REQUIRE(Number(record, "avg_ts") == Approx(49.5));                 // of 55 and 44
  REQUIRE(Number(record, "stddev_ts") == Approx(7.77817459305202));  // sqrt(2 * 5.5^2)
  REQUIRE(Number(record, "ctx_tokens") == 150);
  REQUIRE(Number(record, "prefill_tokens") == 100);
  REQUIRE(Number(record, "prefill_tps") == Approx(75));  // of 100 and 50
  REQUIRE(Number(record, "gen_tokens") == 10);
  REQUIRE(Number(record, "gen_tps") == Approx(15));  // of 10 and 20
  REQUIRE(Number(record, "kvcache_bytes") == 777);
  REQUIRE(Text(record, "samples_ts") == "[55, 44]");

  Record prompt_alone;
  AddTo(&prompt_alone, {.prompt = 8}, {{2, 0}}, 0);
  REQUIRE(Number(prompt_alone, "avg_ts") == 4);
  REQUIRE(Number(prompt_alone, "stddev_ts") == 0);
  REQUIRE(Text(prompt_alone, "gen_tps") == "missing");
}

// Requests of 4 tokens: 1 s to the first, then 0.1, 0.2 and 0.3 s; and 2 s, then 0.4 s three times.
TEST_CASE("a record of serving: latencies and throughput as vllm bench serve defines them") {
  const ServingTest test{.prompt = 30, .generated = 4, .concurrency = 2, .requests = 2};
  Record record;
  AddTo(&record, test, {{1, {0.1, 0.2, 0.3}, 1.6}, {2, {0.4, 0.4, 0.4}, 3.2}}, 4);
  REQUIRE(Text(record, "test") == "pp30+tg4 x2");
  REQUIRE(Number(record, "completed") == 2);
  REQUIRE(Number(record, "max_concurrency") == 2);
  REQUIRE(Number(record, "duration") == 4);
  REQUIRE(Number(record, "total_input_tokens") == 60);
  REQUIRE(Number(record, "total_output_tokens") == 8);
  REQUIRE(Number(record, "request_throughput") == 0.5);
  REQUIRE(Number(record, "output_throughput") == 2);
  REQUIRE(Number(record, "total_token_throughput") == 17);
  REQUIRE(Number(record, "mean_ttft_ms") == Approx(1500));
  REQUIRE(Number(record, "median_ttft_ms") == Approx(1500));
  REQUIRE(Number(record, "std_ttft_ms") == Approx(500));
  REQUIRE(Number(record, "p99_ttft_ms") == Approx(1990));
  REQUIRE(Number(record, "mean_tpot_ms") == Approx(300));  // of 0.6 / 3 and 1.2 / 3
  REQUIRE(Number(record, "p99_tpot_ms") == Approx(398));
  REQUIRE(Number(record, "mean_itl_ms") == Approx(300));
  REQUIRE(Number(record, "median_itl_ms") == Approx(350));
  REQUIRE(Number(record, "mean_e2el_ms") == Approx(2400));
  REQUIRE(Number(record, "p99_e2el_ms") == Approx(3184));
  REQUIRE(Text(record, "itls") == "[[0.1, 0.2, 0.3], [0.4, 0.4, 0.4]]");

  Record one_token;
  AddTo(&one_token, {.prompt = 1, .generated = 1}, {{1, {}, 1}}, 1);
  REQUIRE(Number(one_token, "mean_ttft_ms") == 1000);
  REQUIRE(Text(one_token, "mean_tpot_ms") == "missing");
  REQUIRE(Text(one_token, "mean_itl_ms") == "missing");
}

TEST_CASE("acceptance is of all drafts of a record") {
  Speculation speculation;
  dsv4::SessionStats stats = DSV4_SESSION_STATS_INIT;
  stats.drafted_tokens = 30;
  stats.accepted_tokens = 6;
  stats.draft_steps = 10;
  speculation.Add(stats);
  stats.accepted_tokens = 12;
  stats.alarms = DSV4_ALARM_FEW_ACCEPTED;
  speculation.Add(stats);
  Record record;
  speculation.AddTo(&record, 3);
  REQUIRE(Number(record, "draft_tokens") == 3);
  REQUIRE(Number(record, "acceptance_rate") == Approx(0.3));    // 18 of 60
  REQUIRE(Number(record, "acceptance_length") == Approx(1.9));  // 18 in 20 steps, and one each
  REQUIRE(Text(record, "draft_stop") == "few_accepted");
  Record without;
  Speculation().AddTo(&without, 0);
  REQUIRE(Text(without, "acceptance_rate") == "missing");
}

TEST_CASE("numbers that are none are missing") {
  Record record;
  record.Real("infinite", 1.0 / 0.0);
  record.Real("tenth", 0.1);
  REQUIRE(Text(record, "infinite") == "missing");
  REQUIRE(Text(record, "tenth") == "0.1");
}

// NVML's bits: 1 idle, 4 power cap, 8 hardware slowdown, 0x20 and 0x40 thermal.
TEST_CASE("clocks, power and throttling of GPUs are those of the samples with work") {
  const GpuSummary summary = Summarize({{345, 2619, 70, 0x1},
                                        {1900, 2619, 500, 0},
                                        {1500, 2619, 700, 0x4},
                                        {1700, 2619, 600, 0x4 | 0x20 | 0x8},
                                        {1500, 2619, 400, 0x8}});
  REQUIRE(summary.samples == 4);
  REQUIRE(summary.sm_mhz == Approx(1650));
  REQUIRE(summary.least_sm_mhz == 1500);
  REQUIRE(summary.memory_mhz == Approx(2619));
  REQUIRE(summary.watts == Approx(550));
  REQUIRE(summary.most_watts == 700);
  REQUIRE(summary.throttled == "power cap 50 %, thermal 25 %, hardware slowdown 25 %");
  REQUIRE(summary.Text() ==
          "SM 1650 MHz (least 1500), memory 2619 MHz, 550 W (most 700), throttled: power cap 50 %, "
          "thermal 25 %, hardware slowdown 25 %");

  const GpuSummary idle = Summarize({{345, 2619, 70, 0x1}});
  REQUIRE(idle.samples == 1);
  REQUIRE(idle.throttled == "none");
  std::vector<GpuSample> rarely(1000, {1900, 2619, 500, 0});
  rarely[7].reasons = 0x40;
  REQUIRE(Summarize(rarely).throttled == "thermal 1 %");

  Record record;
  AddTo(&record, summary);
  REQUIRE(Number(record, "gpu_sm_mhz") == Approx(1650));
  REQUIRE(Number(record, "gpu_most_watts") == 700);
  REQUIRE(Text(record, "gpu_throttled") == summary.throttled);
}

TEST_CASE("what is not known of GPUs is missing, with the reason") {
  GpuSampler none({});
  REQUIRE(none.unavailable() == "no GPU");
  // No machine has so many: the driver, NVML or the device is missing.
  GpuSampler absent({4711});
  REQUIRE_FALSE(absent.unavailable().empty());
  const GpuSummary summary = absent.Stop();
  REQUIRE(summary.samples == 0);
  Record record;
  AddTo(&record, summary);
  for (const char* name : {"gpu_sm_mhz", "gpu_least_sm_mhz", "gpu_memory_mhz", "gpu_watts",
                           "gpu_most_watts", "gpu_throttled"}) {
    REQUIRE(Text(record, name) == "missing");
  }
}

}  // namespace
}  // namespace bench
