// SPDX-License-Identifier: Apache-2.0
// Shared by the benchmarks of single operators: random inputs, a launch loop over enough copies of
// the weights to exceed L2, and counters relative to the machine's limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "benchmarks/ceiling.h"
#include "kernels/registry/kernel_entry.h"
#include "lib/tensor/quant_format.h"

namespace dsv4::bench {

inline int thread_count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

inline CpuStream& SharedStream() {
  static CpuStream stream(thread_count);
  return stream;
}

inline double SharedFmaPeak() {
  static const double peak = FmaPeak(SharedStream());
  return peak;
}

inline double SharedReadRate(int64_t bytes) {
  static std::map<int64_t, double> rates;
  const int64_t mib = std::max<int64_t>(1, bytes >> 20);
  const auto [it, added] = rates.try_emplace(mib, 0);
  if (added) it->second = ReadRate(SharedStream(), mib << 20);
  return it->second;
}

// Random bytes that are numbers as e4m3, as e2m1 pairs and, two by two, as bf16 of modest size.
inline std::vector<uint8_t> RandomBytes(int64_t bytes, uint8_t mask) {
  static std::mt19937_64 rng(1);
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(rng()) & mask;
  return data;
}

inline std::vector<uint16_t> RandomBf16(int64_t count) {
  static std::mt19937_64 rng(2);
  std::vector<uint16_t> data(static_cast<size_t>(count));
  for (uint16_t& bits : data) bits = static_cast<uint16_t>((rng() & 0x80ff) | 0x3f00);
  return data;
}

// Weights that own their memory.
struct OwnedFp8 {
  std::vector<uint8_t> data, scale;
  Fp8Weight view;
  OwnedFp8(int64_t n, int64_t k)
      : data(RandomBytes(n * k, 0xbf)), scale(((n + 127) / 128) * ((k + 127) / 128), 120) {
    view = {data.data(), scale.data(), n, k};
  }
};

struct OwnedFp4 {
  std::vector<uint8_t> data, scale;
  Fp4Weight view;
  OwnedFp4(int64_t n, int64_t k) : data(RandomBytes(n * k / 2, 0xff)), scale(n * k / 32, 122) {
    view = {data.data(), scale.data(), n, k};
  }
};

struct OwnedBf16 {
  std::vector<uint16_t> data;
  Bf16Weight view;
  OwnedBf16(int64_t n, int64_t k) : data(RandomBf16(n * k)) { view = {data.data(), n, k}; }
};

// Copies of weights of `bytes` so that all of them pass L2, within reason.
inline int64_t Copies(int64_t bytes) {
  constexpr int64_t kWorkingSet = 12 << 20;
  return std::clamp<int64_t>(kWorkingSet / std::max<int64_t>(bytes, 1), 1, 64);
}

// Launches `calls` in turn. The floor is the larger of reading the bytes, at the rate of the calls'
// whole working set, and doing the operations at the FMA peak.
template <class Params>
void RunCalls(benchmark::State& state, const KernelEntry& entry, const std::vector<Params>& calls) {
  CpuStream& stream = SharedStream();
  const auto bytes = static_cast<size_t>(entry.workspace_bytes(&calls[0], stream.threads()));
  std::vector<std::byte> memory(bytes + 64);
  LaunchContext context;
  context.stream = &stream;
  context.workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  size_t next = 0;
  for (auto _ : state) {
    entry.launch(context, &calls[next]);
    next = next + 1 < calls.size() ? next + 1 : 0;
  }
  const Cost cost = CostOf(calls[0]);
  const auto call_count = static_cast<int64_t>(calls.size());
  const double floor =
      std::max(static_cast<double>(cost.bytes) / SharedReadRate(cost.bytes * call_count),
               static_cast<double>(cost.flops) / SharedFmaPeak());
  using benchmark::Counter;
  state.counters["GB/s"] =
      Counter(static_cast<double>(cost.bytes) / 1e9, Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] =
      Counter(static_cast<double>(cost.flops) / 1e9, Counter::kIsIterationInvariantRate);
  state.counters["floor%"] = Counter(100 * floor, Counter::kIsIterationInvariantRate);
}

// main of a benchmark: Google Benchmark's options, and --threads=N (else one per processor).
inline int Main(int argc, char** argv) {
  constexpr char kThreads[] = "--threads=";
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kThreads, sizeof(kThreads) - 1) == 0) {
      thread_count = std::max(1, std::atoi(argv[i] + sizeof(kThreads) - 1));
    } else {
      argv[kept++] = argv[i];
    }
  }
  benchmark::Initialize(&kept, argv);
  if (benchmark::ReportUnrecognizedArguments(kept, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace dsv4::bench
