// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/ceiling.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 independent chains: more than latency times rate of any processor so far, and with two factors
// in registers everywhere. Returns the operations done and adds the sums to *sink.
int64_t FmaChains(int64_t iterations, float* sink) {
  using Tag = hn::ScalableTag<float>;
  const Tag df;
  const auto factor = hn::Set(df, 0.999f), term = hn::Set(df, *sink);
  // All chains begin differently, or the compiler would make them one.
  auto a0 = hn::Set(df, 0.0f), a1 = hn::Set(df, 0.1f), a2 = hn::Set(df, 0.2f);
  auto a3 = hn::Set(df, 0.3f), a4 = hn::Set(df, 0.4f), a5 = hn::Set(df, 0.5f);
  auto b0 = hn::Set(df, 0.6f), b1 = hn::Set(df, 0.7f), b2 = hn::Set(df, 0.8f);
  auto b3 = hn::Set(df, 0.9f), b4 = hn::Set(df, 1.0f), b5 = hn::Set(df, 1.1f);
  for (int64_t i = 0; i < iterations; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    b0 = hn::MulAdd(b0, factor, term);
    b1 = hn::MulAdd(b1, factor, term);
    b2 = hn::MulAdd(b2, factor, term);
    b3 = hn::MulAdd(b3, factor, term);
    b4 = hn::MulAdd(b4, factor, term);
    b5 = hn::MulAdd(b5, factor, term);
  }
  const auto a = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto b = hn::Add(hn::Add(hn::Add(b0, b1), hn::Add(b2, b3)), hn::Add(b4, b5));
  *sink += hn::GetLane(hn::Add(a, b));
  return iterations * 12 * 2 * static_cast<int64_t>(hn::Lanes(df));
}

// Reads n bytes (a multiple of 4096, 64-byte aligned); returns something of all of them.
uint64_t ReadAll(const uint64_t* data, int64_t bytes) {
  const hn::ScalableTag<uint64_t> du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  auto a = hn::Zero(du), b = a, c = a, d = a;
  for (int64_t i = 0; i < bytes / 8; i += 4 * lanes) {
    a = hn::Xor(a, hn::Load(du, data + i));
    b = hn::Xor(b, hn::Load(du, data + i + lanes));
    c = hn::Xor(c, hn::Load(du, data + i + 2 * lanes));
    d = hn::Xor(d, hn::Load(du, data + i + 3 * lanes));
  }
  return hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(FmaChains);
HWY_EXPORT(ReadAll);

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 7;
constexpr double kRunSeconds = 0.02;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// The best rate of several runs of `run`, which takes a number of rounds and returns what it did.
template <class Run>
double BestRate(Run run) {
  int64_t rounds = 1;
  for (;; rounds *= 2) {
    const Clock::time_point start = Clock::now();
    run(rounds);
    if (Seconds(start) > kRunSeconds / 2) break;
  }
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point start = Clock::now();
    const double done = static_cast<double>(run(rounds));
    best = std::max(best, done / Seconds(start));
  }
  return best;
}

// Keeps results of measured work alive.
std::atomic<uint64_t> sink{0};

}  // namespace

double FmaPeak(CpuStream& stream) {
  return BestRate([&](int64_t rounds) {
    std::atomic<int64_t> operations{0};
    stream.ParallelFor(stream.threads(), [&](int64_t unit, int) {
      // Not zero: sums that only decay become subnormal numbers, which take much longer.
      float value = 1.0f + static_cast<float>(unit);
      operations += HWY_DYNAMIC_DISPATCH(FmaChains)(rounds * 1000, &value);
      sink += static_cast<uint64_t>(value);
    });
    return operations.load();
  });
}

double ReadRate(CpuStream& stream, int64_t working_set_bytes) {
  constexpr int64_t kPage = 4096;
  const int64_t share = std::max<int64_t>(working_set_bytes / stream.threads() / kPage, 1) * kPage;
  std::vector<uint64_t> memory((share * stream.threads() + 64) / 8, 1);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const uint64_t* data = memory.data() + (64 - address % 64) % 64 / 8;
  return BestRate([&](int64_t rounds) {
    stream.ParallelFor(stream.threads(), [&](int64_t unit, int) {
      uint64_t value = 0;
      for (int64_t round = 0; round < rounds; ++round) {
        value += HWY_DYNAMIC_DISPATCH(ReadAll)(data + unit * share / 8, share);
      }
      sink += value;
    });
    return rounds * share * stream.threads();
  });
}

}  // namespace dsv4
#endif  // HWY_ONCE
