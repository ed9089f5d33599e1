// SPDX-License-Identifier: Apache-2.0
// Prefill and decode of a whole model at chosen context lengths and numbers of sessions, against
// the bandwidth that this device has for copies, measured in the same run. With --synthetic-layers
// N the weights are random and MODEL_DIR needs a config.json alone: benchmarks/e2e/flash has the
// one of DeepSeek V4 Flash. The floor of a step of one session is the time to read each weight that
// it needs once; experts are counted as routed, without overlap. usage: bench_decode [--backend
// cpu|cuda] [--synthetic-layers N] [--contexts N,...]
//                     [--sessions N,...] [--chunk N] MODEL_DIR
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lib/model/synthetic.h"
#include "lib/model/weights.h"
#include "lib/runtime/engine.h"
#include "lib/runtime/session.h"

namespace dsv4 {
namespace {

constexpr int kWarmSteps = 8, kSteps = 32;
constexpr double kSm120Bandwidth = 1792e9;  // RTX PRO 6000, RTX 5090: bytes a second, by the vendor

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_decode: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

struct Options {
  std::string folder;
  EngineOptions engine;
  std::vector<int64_t> contexts = {2048};
  std::vector<int64_t> sessions = {1};
};

// Bytes of weights that one token reads: all but the embedding and the MTP block, of the routed
// experts K of E.
double ActiveBytes(const ModelConfig& config) {
  double bytes = 0;
  for (const TensorEntry& entry : Weights::TensorsOf(config)) {
    if (entry.name.rfind("mtp.", 0) == 0 || entry.name == "embed.weight") continue;
    if (entry.name.find("tid2eid") != std::string::npos) continue;
    const bool routed = entry.name.find("ffn.experts.") != std::string::npos;
    const double share = routed ? static_cast<double>(config.num_experts_per_tok) /
                                      static_cast<double>(config.n_routed_experts)
                                : 1;
    bytes += share * static_cast<double>(entry.bytes);
  }
  return bytes;
}

// Bytes read and written a second by a copy that no cache holds.
double CopyBandwidth(Device& device) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int kCopies = 8;
  const Buffer from = Must(device.Allocate(kBytes, "measuring copies"));
  const Buffer to = Must(device.Allocate(kBytes, "measuring copies"));
  Must(device.Copy(to.data(), from.data(), kBytes));
  Must(device.Finish());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kCopies; ++i) Must(device.Copy(to.data(), from.data(), kBytes));
  Must(device.Finish());
  return 2.0 * kBytes * kCopies / SecondsSince(start);
}

std::vector<int32_t> Prompt(int64_t tokens, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    uint64_t z = (seed << 32) + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9u;
    prompt.push_back(static_cast<int32_t>(2 + (z >> 33) % static_cast<uint64_t>(vocab - 2)));
  }
  return prompt;
}

void Run(Options options) {
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  const int64_t most = *std::max_element(options.sessions.begin(), options.sessions.end());
  options.engine.context_tokens = longest + kWarmSteps + kSteps + 2;
  options.engine.cache_tokens = options.engine.context_tokens * most;
  options.engine.max_sessions = static_cast<int32_t>(most);
  const Clock::time_point opening = Clock::now();
  const std::shared_ptr<Engine> engine = Must(Engine::Open(options.folder, options.engine));
  const ModelConfig& config = engine->config();
  const double active = ActiveBytes(config);
  Must(engine->device().Finish());
  const double open_seconds = SecondsSince(opening);
  const double bandwidth = CopyBandwidth(engine->device());
  std::printf(
      "%s, %lld layers, opened in %.1f s: weights %.2f GB, cache %.2f GB, workspace %.2f GB\n",
      engine->device_name().c_str(), static_cast<long long>(config.num_hidden_layers), open_seconds,
      static_cast<double>(engine->info().weight_bytes) * 1e-9,
      static_cast<double>(engine->info().cache_bytes) * 1e-9,
      static_cast<double>(engine->info().workspace_bytes) * 1e-9);
  std::printf("a token reads %.3f GB; copies %.0f GB/s; floor %.3f ms, at %.0f GB/s %.3f ms\n",
              active * 1e-9, bandwidth * 1e-9, active / bandwidth * 1e3, kSm120Bandwidth * 1e-9,
              active / kSm120Bandwidth * 1e3);
  std::printf("%9s %9s %12s %12s %12s %14s\n", "context", "sessions", "prefill t/s", "step ms",
              "tokens/s", "of the floor");
  for (const int64_t context : options.contexts) {
    for (const int64_t count : options.sessions) {
      std::vector<std::unique_ptr<Session>> sessions;
      for (int64_t i = 0; i < count; ++i) {
        sessions.push_back(Must(Session::Open(engine, {})));
        Must(sessions.back()->SetSampling(
            {.temperature = 0, .banned_tokens = {static_cast<int32_t>(config.eos_token_id)}}));
        Must(sessions.back()->Sync(
            Prompt(context, config.vocab_size, static_cast<uint64_t>(i + 1 + context))));
      }
      const Clock::time_point prefilling = Clock::now();
      for (const auto& session : sessions) Must(session->Prefill(0, nullptr));
      const double prefill = SecondsSince(prefilling);
      std::vector<Session*> steps;
      for (const auto& session : sessions) steps.push_back(session.get());
      std::vector<absl::StatusOr<StepResult>> results(steps.size());
      double seconds = 0;
      for (int step = 0; step < kWarmSteps + kSteps; ++step) {
        const Clock::time_point start = Clock::now();
        Must(Session::StepAll(steps, absl::MakeSpan(results)));
        for (const auto& result : results) Must(result.status());
        if (step >= kWarmSteps) seconds += SecondsSince(start);
      }
      const double step = seconds / kSteps;
      std::printf("%9lld %9lld %12.0f %12.3f %12.1f %13.1f%%\n", static_cast<long long>(context),
                  static_cast<long long>(count), static_cast<double>(context * count) / prefill,
                  step * 1e3, static_cast<double>(count) / step, 100 * active / bandwidth / step);
    }
  }
}

std::vector<int64_t> Numbers(const char* text) {
  std::vector<int64_t> numbers;
  while (*text != '\0') {
    char* end = nullptr;
    numbers.push_back(std::strtoll(text, &end, 10));
    if (end == text || numbers.back() < 1) return {};
    text = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

bool Parse(int argc, char** argv, Options* options) {
  options->engine.prefill_chunk_tokens = 4096;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument[0] != '-') {
      if (!options->folder.empty()) return false;
      options->folder = argument;
      continue;
    }
    if (++i == argc) return false;
    if (argument == "--backend") {
      const std::string name = argv[i];
      if (name != "cpu" && name != "cuda") return false;
      options->engine.backend = name == "cpu" ? Backend::kCpu : Backend::kCuda;
      continue;
    }
    const std::vector<int64_t> numbers = Numbers(argv[i]);
    if (numbers.empty()) return false;
    if (argument == "--synthetic-layers") {
      options->engine.synthetic_layers = numbers[0];
    } else if (argument == "--contexts") {
      options->contexts = numbers;
    } else if (argument == "--sessions") {
      options->sessions = numbers;
    } else if (argument == "--chunk") {
      options->engine.prefill_chunk_tokens = static_cast<int32_t>(numbers[0]);
    } else {
      return false;
    }
  }
  return !options->folder.empty();
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  dsv4::Options options;
  if (!dsv4::Parse(argc, argv, &options)) {
    std::fprintf(
        stderr,
        "usage: bench_decode [--backend cpu|cuda] [--synthetic-layers N] [--contexts N,...]\n"
        "                    [--sessions N,...] [--chunk N] MODEL_DIR\n");
    return 2;
  }
  dsv4::Run(options);
  return 0;
}
