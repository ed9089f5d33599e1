// SPDX-License-Identifier: Apache-2.0
// moe_gate and expert_ffn of the SIMD backend, at shapes of the bundled model and of Flash.
// Arguments: rows, hidden, (expert width,) experts, experts per token.
#include "benchmarks/kernels/kernel_bench.h"
#include "kernels/cpu/entries.h"
#include "kernels/op/moe.h"

namespace dsv4::bench {
namespace {

void MoeGate(benchmark::State& state) {
  const int64_t rows = state.range(0), hidden = state.range(1), experts = state.range(2);
  const auto per_token = static_cast<int32_t>(state.range(3));
  const std::vector<uint16_t> x = RandomBf16(rows * hidden);
  const std::vector<float> bias(static_cast<size_t>(experts), 0.0f);
  std::vector<int32_t> chosen(rows * per_token);
  std::vector<float> weights(rows * per_token);
  std::vector<OwnedBf16> gates;
  std::vector<MoeGateParams> calls;
  for (int64_t i = 0; i < Copies(2 * experts * hidden); ++i) gates.emplace_back(experts, hidden);
  for (const OwnedBf16& gate : gates) {
    MoeGateParams p;
    p.rows = static_cast<int32_t>(rows);
    p.experts_per_token = per_token;
    p.gate = gate.view;
    p.x = x.data();
    p.bias = bias.data();
    p.routed_scale = 1.5f;
    p.experts = chosen.data();
    p.weights = weights.data();
    calls.push_back(p);
  }
  RunCalls(state, kCpuMoeGate, calls);
}
BENCHMARK(MoeGate)
    ->Args({1, 256, 16, 4})
    ->Args({16, 256, 16, 4})
    ->Args({1024, 256, 16, 4})
    ->Args({1, 4096, 256, 6})
    ->Args({128, 4096, 256, 6})
    ->UseRealTime();

// One layer's experts.
struct Layer {
  std::vector<OwnedFp4> fp4;
  OwnedFp8 shared_w1, shared_w3, shared_w2;
  std::vector<ExpertWeights> experts;
  std::vector<const ExpertWeights*> table;

  Layer(int64_t hidden, int64_t inter, int64_t count)
      : shared_w1(inter, hidden), shared_w3(inter, hidden), shared_w2(hidden, inter) {
    fp4.reserve(static_cast<size_t>(3 * count));
    for (int64_t e = 0; e < count; ++e) {
      fp4.emplace_back(inter, hidden);
      fp4.emplace_back(inter, hidden);
      fp4.emplace_back(hidden, inter);
      const OwnedFp4* w = &fp4[static_cast<size_t>(3 * e)];
      experts.push_back({w[0].view, w[1].view, w[2].view});
    }
    for (const ExpertWeights& e : experts) table.push_back(&e);
  }
};

void ExpertFfn(benchmark::State& state) {
  const int64_t rows = state.range(0), hidden = state.range(1), inter = state.range(2);
  const auto experts = static_cast<int32_t>(state.range(3));
  const auto per_token = static_cast<int32_t>(state.range(4));
  const std::vector<uint16_t> x = RandomBf16(rows * hidden);
  std::vector<uint16_t> y(rows * hidden);
  std::vector<std::unique_ptr<Layer>> layers;
  for (int64_t i = 0; i < Copies(3 * hidden * inter * experts / 2); ++i) {
    layers.push_back(std::make_unique<Layer>(hidden, inter, experts));
  }
  // Several choices of experts, so that few rows do not meet the same ones every time.
  constexpr int kChoices = 4;
  std::mt19937 rng(3);
  std::vector<std::vector<int32_t>> chosen(kChoices);
  for (std::vector<int32_t>& choice : chosen) {
    for (int64_t t = 0; t < rows; ++t) {
      const auto first = static_cast<int32_t>(rng() % static_cast<uint32_t>(experts));
      for (int32_t i = 0; i < per_token; ++i) choice.push_back((first + 3 * i) % experts);
    }
  }
  const std::vector<float> weights(static_cast<size_t>(rows * per_token), 0.25f);
  std::vector<ExpertFfnParams> calls;
  for (const std::unique_ptr<Layer>& layer : layers) {
    for (const std::vector<int32_t>& choice : chosen) {
      ExpertFfnParams p;
      p.rows = static_cast<int32_t>(rows);
      p.hidden = hidden;
      p.inter = inter;
      p.expert_count = experts;
      p.experts_per_token = per_token;
      p.experts_table = layer->table.data();
      p.shared_w1 = layer->shared_w1.view;
      p.shared_w3 = layer->shared_w3.view;
      p.shared_w2 = layer->shared_w2.view;
      p.experts = choice.data();
      p.weights = weights.data();
      p.limit = 10;
      p.x = x.data();
      p.y = y.data();
      calls.push_back(p);
    }
  }
  RunCalls(state, kCpuExpertFfn, calls);
}
BENCHMARK(ExpertFfn)
    ->Args({1, 256, 128, 16, 4})
    ->Args({4, 256, 128, 16, 4})
    ->Args({16, 256, 128, 16, 4})
    ->Args({128, 256, 128, 16, 4})
    ->Args({1024, 256, 128, 16, 4})
    ->Args({1, 4096, 2048, 32, 6})
    ->Args({4, 4096, 2048, 32, 6})
    ->Args({64, 4096, 2048, 32, 6})
    ->UseRealTime();

}  // namespace
}  // namespace dsv4::bench

int main(int argc, char** argv) { return dsv4::bench::Main(argc, argv); }
