// SPDX-License-Identifier: Apache-2.0
// End-to-end speed of the cpu backend against what this machine can do, measured in the same run:
//   prefill  floating-point operations (CostOf of every launch) per second, in percent of the f32
//   FMA
//            peak;
//   decode   time of a step over its floor = bytes / read rate of that working set + flops / FMA
//   peak
//            + 0.3 us per operator call.
// With --operators, a line per operator. --cache-format packed,bf16 measures several formats of the
// cache's rows in turns, repetition by repetition. --tokens, --steps and --repetitions set the
// length of the prompt (1024), how many tokens are decoded behind it (128) and how often (7);
// --instructions makes do without AMX (avx512bf16), AVX512-BF16 (avx512) or AVX-512 (avx2).
// MODEL_DIR may be benchmarks/e2e/wide: five layers of Flash's widths, 2.3 GB of random weights.
// usage: bench_forward [--operators] [--threads N] [--tokens N] [--steps N] [--repetitions N]
//        [--instructions avx512bf16|avx512|avx2] [--cache-format F[,F...]] MODEL_DIR
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/ceiling.h"
#include "benchmarks/clock.h"
#include "benchmarks/e2e/operator_times.h"
#include "benchmarks/instructions.h"
#include "benchmarks/must.h"
#include "lib/device/cpu_device.h"
#include "lib/engine/engine.h"
#include "lib/session/session.h"

namespace dsv4 {
namespace {

// How much is measured; a model of real widths takes less of it.
struct Amounts {
  int64_t prompt_tokens = 1024;
  int decode_steps = 128;
  int repetitions = 7;
};

constexpr double kCallSeconds = 0.3e-6;  // of an operator call, in the decode floor

std::vector<int32_t> PromptTokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>(3 + (state >> 8) % (vocab - 3)));
  }
  return tokens;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One engine under measurement.
class Subject {
 public:
  Subject(const std::string& folder, const EngineOptions& options, const Amounts& amounts)
      : amounts_(amounts) {
    const Clock::time_point start = Clock::now();
    engine_ = Must(Engine::Open(folder, options));
    open_seconds_ = SecondsSince(start);
    prompt_ = PromptTokens(amounts.prompt_tokens, engine_->config().vocab_size);
    // The costs of one prefill and of one decode step, and the time of each operator.
    Prefill();
    prefill_times_.emplace(&engine_->device());
    engine_->set_recorder(&*prefill_times_);
    Prefill();
    Must(session_->Step());
    decode_times_.emplace(&engine_->device());
    engine_->set_recorder(&*decode_times_);
    for (int step = 0; step < amounts_.decode_steps; ++step) Must(session_->Step());
    engine_->set_recorder(nullptr);
  }

  int32_t threads() const { return engine_->info().threads; }
  int64_t step_bytes() const { return decode_times_->all().cost.bytes / amounts_.decode_steps; }
  const std::vector<double>& prefill_seconds() const { return prefill_seconds_; }
  const std::vector<double>& decode_seconds() const { return decode_seconds_; }
  const char* cache_format() const { return RowFormatName(engine_->info().cache_format); }

  void Measure() {
    Clock::time_point begin = Clock::now();
    Prefill();
    prefill_seconds_.push_back(SecondsSince(begin));
    Must(session_->Step());
    begin = Clock::now();
    for (int step = 0; step < amounts_.decode_steps; ++step) Must(session_->Step());
    decode_seconds_.push_back(SecondsSince(begin) / amounts_.decode_steps);
  }

  void Print(double fma_flops, double read_bytes, bool operators) const {
    const double prefill_time = Median(prefill_seconds_), decode_time = Median(decode_seconds_);
    const double prefill_flops = static_cast<double>(prefill_times_->all().cost.flops);
    const double step_flops =
        static_cast<double>(decode_times_->all().cost.flops) / amounts_.decode_steps;
    const double calls = static_cast<double>(decode_times_->all().calls) / amounts_.decode_steps;
    const double floor = step_bytes() / read_bytes + step_flops / fma_flops + calls * kCallSeconds;
    std::printf(
        "open %.1f ms, %d threads, cache %s, FMA peak %.1f GFLOP/s, read rate %.1f GB/s over "
        "%.1f MB\n",
        open_seconds_ * 1e3, threads(), cache_format(), fma_flops * 1e-9, read_bytes * 1e-9,
        step_bytes() * 1e-6);
    std::printf("prefill %lld tokens: %.1f ms, %.0f tokens/s, %.2f GFLOP, %.1f %% of FMA peak\n",
                static_cast<long long>(amounts_.prompt_tokens), prefill_time * 1e3,
                static_cast<double>(amounts_.prompt_tokens) / prefill_time, prefill_flops * 1e-9,
                100 * prefill_flops / prefill_time / fma_flops);
    std::printf(
        "decode at %lld: %.1f us, %.0f tokens/s; floor %.1f us (%.2f MB, %.2f MFLOP, %.0f calls), "
        "%.2f times\n",
        static_cast<long long>(amounts_.prompt_tokens), decode_time * 1e6, 1 / decode_time,
        floor * 1e6, step_bytes() * 1e-6, step_flops * 1e-6, calls, decode_time / floor);
    if (operators) {
      std::printf("prefill, per prompt:\n");
      prefill_times_->Print(1);
      std::printf("decode, per step:\n");
      decode_times_->Print(amounts_.decode_steps);
    }
  }

 private:
  // A salt of its own for each: nothing is reused.
  void Prefill() {
    session_.reset();
    session_ = Must(Session::Open(engine_, {}, ++salt_));
    Must(session_->Sync(prompt_));
    Must(session_->Prefill(0, nullptr));
  }

  const Amounts amounts_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  uint64_t salt_ = 0;
  double open_seconds_ = 0;
  std::vector<int32_t> prompt_;
  std::optional<OperatorTimes> prefill_times_, decode_times_;
  std::vector<double> prefill_seconds_, decode_seconds_;
};

// Median of a[i] / b[i].
double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(ratios);
}

void Run(const std::string& folder, EngineOptions options,
         const std::vector<std::optional<RowFormat>>& formats, const Amounts& amounts,
         bool operators) {
  std::deque<Subject> subjects;
  for (const std::optional<RowFormat>& format : formats) {
    options.cache_format = format;
    subjects.emplace_back(folder, options, amounts);
  }
  // The ceilings are measured between the repetitions: this machine's clock and neighbours vary.
  std::vector<double> fma, read;
  for (int repetition = 0; repetition < amounts.repetitions; ++repetition) {
    {
      CpuStream stream(subjects.front().threads());
      fma.push_back(FmaPeak(stream));
      read.push_back(ReadRate(stream, subjects.front().step_bytes()));
    }
    for (Subject& subject : subjects) subject.Measure();
  }
  for (const Subject& subject : subjects) subject.Print(Median(fma), Median(read), operators);
  const Subject& first = subjects.front();
  for (size_t i = 1; i < subjects.size(); ++i) {
    std::printf("time of %s over %s: prefill %.3f, decode %.3f\n", first.cache_format(),
                subjects[i].cache_format(),
                MedianRatio(first.prefill_seconds(), subjects[i].prefill_seconds()),
                MedianRatio(first.decode_seconds(), subjects[i].decode_seconds()));
  }
}

// "packed,bf16"; false for a name that is not a format.
bool ParseFormats(std::string names, std::vector<std::optional<RowFormat>>* formats) {
  names += ',';
  for (size_t begin = 0, end; begin < names.size(); begin = end + 1) {
    end = names.find(',', begin);
    const std::string name = names.substr(begin, end - begin);
    const size_t before = formats->size();
    for (const RowFormat format :
         {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor}) {
      if (name == RowFormatName(format)) formats->push_back(format);
    }
    if (formats->size() == before) return false;
  }
  return true;
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  std::string folder;
  dsv4::EngineOptions options;
  std::vector<std::optional<dsv4::RowFormat>> formats;
  dsv4::Amounts amounts;
  bool operators = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--operators") == 0) {
      operators = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      options.threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--tokens") == 0 && i + 1 < argc) {
      amounts.prompt_tokens = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      amounts.decode_steps = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--repetitions") == 0 && i + 1 < argc) {
      amounts.repetitions = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--cache-format") == 0 && i + 1 < argc &&
               dsv4::ParseFormats(argv[i + 1], &formats)) {
      ++i;
    } else if (std::strcmp(argv[i], "--instructions") == 0 && i + 1 < argc &&
               dsv4::LimitInstructions(argv[i + 1])) {
      ++i;
    } else if (argv[i][0] != '-' && folder.empty()) {
      folder = argv[i];
    } else {
      folder.clear();
      break;
    }
  }
  if (folder.empty() || amounts.prompt_tokens < 1 || amounts.decode_steps < 1 ||
      amounts.repetitions < 1) {
    std::fprintf(stderr,
                 "usage: bench_forward [--operators] [--threads N] [--tokens N] [--steps N] "
                 "[--repetitions N] [--instructions avx512bf16|avx512|avx2] "
                 "[--cache-format packed|bf16|fp8_per_tensor[,...]] MODEL_DIR\n");
    return 2;
  }
  if (formats.empty()) formats.emplace_back();
  dsv4::Run(folder, options, formats, amounts, operators);
  return 0;
}
