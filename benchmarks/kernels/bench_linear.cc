// SPDX-License-Identifier: Apache-2.0
// linear_fp8, linear_bf16 and output_groups of the SIMD backend, at shapes of the bundled model and
// of Flash. Arguments: rows, n, k (groups, rank, group width).
#include "benchmarks/kernels/kernel_bench.h"
#include "kernels/cpu/entries.h"
#include "kernels/op/dense.h"

namespace dsv4::bench {
namespace {

void LinearFp8(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<uint16_t> x = RandomBf16(rows * k);
  std::vector<uint16_t> y(rows * n);
  std::vector<OwnedFp8> weights;
  std::vector<LinearFp8Params> calls;
  for (int64_t i = 0; i < Copies(n * k); ++i) weights.emplace_back(n, k);
  for (const OwnedFp8& w : weights) {
    LinearFp8Params p;
    p.rows = static_cast<int32_t>(rows);
    p.k = k;
    p.x = x.data();
    p.part_count = 1;
    p.parts[0] = {w.view, y.data()};
    calls.push_back(p);
  }
  RunCalls(state, kCpuLinearFp8, calls);
}
BENCHMARK(LinearFp8)
    ->ArgsProduct({{1, 4, 16, 1024}, {2048}, {128}})
    ->ArgsProduct({{1, 4, 16, 1024}, {640}, {256}})
    ->ArgsProduct({{1, 4, 16, 1024}, {256}, {256}})
    ->ArgsProduct({{1, 4, 16, 128}, {4096}, {8192}})
    ->ArgsProduct({{1, 4, 16, 128}, {32768}, {1024}})
    ->UseRealTime();

void LinearBf16(benchmark::State& state) {
  const int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<uint16_t> x = RandomBf16(rows * k);
  std::vector<float> y(rows * n);
  std::vector<OwnedBf16> weights;
  std::vector<LinearBf16Params> calls;
  for (int64_t i = 0; i < Copies(2 * n * k); ++i) weights.emplace_back(n, k);
  for (const OwnedBf16& w : weights) {
    LinearBf16Params p;
    p.rows = static_cast<int32_t>(rows);
    p.k = k;
    p.x = x.data();
    p.part_count = 1;
    p.parts[0] = {w.view, y.data(), false};
    calls.push_back(p);
  }
  RunCalls(state, kCpuLinearBf16, calls);
}
BENCHMARK(LinearBf16)
    ->ArgsProduct({{1, 4, 16, 1024}, {2048, 512}, {256}})
    ->ArgsProduct({{1, 16, 128}, {8192}, {4096}})
    ->UseRealTime();

void OutputGroups(benchmark::State& state) {
  const int64_t rows = state.range(0), groups = state.range(1), rank = state.range(2),
                width = state.range(3);
  const std::vector<uint16_t> o = RandomBf16(rows * groups * width);
  std::vector<uint16_t> y(rows * groups * rank);
  std::vector<OwnedFp8> weights;
  std::vector<OutputGroupsParams> calls;
  for (int64_t i = 0; i < Copies(groups * rank * width); ++i) {
    weights.emplace_back(groups * rank, width);
  }
  for (const OwnedFp8& w : weights) {
    OutputGroupsParams p;
    p.rows = static_cast<int32_t>(rows);
    p.groups = static_cast<int32_t>(groups);
    p.rank = rank;
    p.group_width = width;
    p.wo_a = w.view;
    p.o = o.data();
    p.y = y.data();
    calls.push_back(p);
  }
  RunCalls(state, kCpuOutputGroups, calls);
}
BENCHMARK(OutputGroups)
    ->ArgsProduct({{1, 4, 16, 1024}, {2}, {128}, {1024}})
    ->ArgsProduct({{1, 16, 128}, {8}, {1024}, {4096}})
    ->UseRealTime();

}  // namespace
}  // namespace dsv4::bench

int main(int argc, char** argv) { return dsv4::bench::Main(argc, argv); }
