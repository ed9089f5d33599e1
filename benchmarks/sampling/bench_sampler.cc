// SPDX-License-Identifier: Apache-2.0
// Time from a row of logits of the family's vocabulary to a token, per rule that costs something.
// The bound that the project promises is about 1 ms with top-k or top-p.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lib/sampling/log_probs.h"
#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"

namespace dsv4 {
namespace {

constexpr int32_t kVocab = 129280;

// Normally distributed, of this deviation: 4 is about what a model's logits look like, 0.1 is
// nearly flat, the worst case of the selections.
std::vector<float> Logits(double deviation, uint64_t seed = 1) {
  std::vector<float> logits(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) {
    const double u = 1 - Uniform(seed, i);
    const double v = Uniform(~seed, i);
    logits[i] = static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) *
                                   std::cos(6.283185307179586 * v));
  }
  return logits;
}

void Choose(benchmark::State& state, const SamplingParams& params, double deviation,
            bool masked = false) {
  const std::vector<float> logits = Logits(deviation);
  std::vector<int32_t> prompt(4096);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 7919 % kVocab);
  std::vector<uint32_t> mask;
  if (masked) mask.assign(TokenMaskWords(kVocab), 0x77777777);
  Sampler sampler(kVocab, kVocab - 480, {});
  if (!sampler.SetParams(params).ok()) return state.SkipWithError("parameters");
  TokenHistory history(kVocab);
  history.Reset(prompt);
  Distribution distribution(kVocab);
  uint64_t position = 0;
  for (auto _ : state) {
    const bool ok =
        sampler.ComputeDistribution(logits, history, {.allowed = mask}, &distribution).ok();
    benchmark::DoNotOptimize(ok);
    benchmark::DoNotOptimize(Draw(distribution, Uniform(1, position++)));
  }
  state.counters["candidates"] = static_cast<double>(distribution.candidates().size());
}

BENCHMARK_CAPTURE(Choose, greedy, {}, 4);
BENCHMARK_CAPTURE(Choose, greedy_masked, {}, 4, true);
BENCHMARK_CAPTURE(Choose, greedy_penalties, {.repetition_penalty = 1.1f}, 4);
BENCHMARK_CAPTURE(Choose, all, {.temperature = 1}, 4);
BENCHMARK_CAPTURE(Choose, top_k, {.temperature = 1, .top_k = 40}, 4);
BENCHMARK_CAPTURE(Choose, top_p, {.temperature = 1, .top_p = 0.95f}, 4);
BENCHMARK_CAPTURE(Choose, top_p_flat, {.temperature = 1, .top_p = 0.95f}, 0.1);
BENCHMARK_CAPTURE(Choose, min_p, {.temperature = 1, .min_p = 0.05f}, 4);
BENCHMARK_CAPTURE(Choose, top_k_top_p, {.temperature = 1, .top_k = 40, .top_p = 0.95f}, 4);
BENCHMARK_CAPTURE(Choose, everything,
                  {.temperature = 1,
                   .top_k = 40,
                   .top_p = 0.95f,
                   .min_p = 0.05f,
                   .repetition_penalty = 1.1f,
                   .presence_penalty = 0.5f},
                  4, true);

void TopTwenty(benchmark::State& state) {
  const std::vector<float> logits = Logits(4);
  std::vector<TokenLogProb> top(kMaxLogProbs);
  for (auto _ : state) {
    const double mass = LogMass(logits);
    benchmark::DoNotOptimize(TopLogProbs(logits, mass, absl::MakeSpan(top)));
  }
}
BENCHMARK(TopTwenty);

}  // namespace
}  // namespace dsv4

BENCHMARK_MAIN();
