// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/e2e/bench_decode_options.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "examples/console/command_line.h"

namespace dsv4 {
namespace {

using Options = BenchDecodeOptions;
using Engine = EngineOptions;
using chat::Named;
using chat::Option;
using chat::SetCount;
using chat::SetName;
using chat::SetParsed;
using chat::SetText;

constexpr Named<Backend> kBackends[] = {{"cpu", Backend::kCpu}, {"cuda", Backend::kCuda}};
constexpr Named<ExchangePath> kPaths[] = {{"auto", ExchangePath::kAuto},
                                          {"direct", ExchangePath::kDirect},
                                          {"host", ExchangePath::kHost},
                                          {"nccl", ExchangePath::kNccl},
                                          {"none", ExchangePath::kNone}};
constexpr Named<RowFormat> kFormats[] = {{"packed", RowFormat::kPacked},
                                         {"bf16", RowFormat::kBf16},
                                         {"fp8_per_tensor", RowFormat::kFp8PerTensor}};

template <auto field>
void SetCounts(Options* o, const std::string& name, const std::string& list) {
  (o->*field).clear();
  for (const std::string_view part : chat::SplitAtCommas(list))
    (o->*field).push_back(chat::ParseCount<int64_t>(name, part));
}

template <auto... path>
void SetFloat(Options* o, const std::string& name, const std::string& value) {
  chat::FieldOf<path...>(o) =
      chat::ParseNumber<float>(name, value, 0, std::numeric_limits<float>::max());
}

constexpr Option<Options> kOptions[] = {
    {"", "--auto", "", "open what the library chooses", chat::SetFlag<true, &Options::automatic>},
    {"", "--leave", "GB", "with so much free memory on each GPU",
     SetParsed<chat::ParseGigabytes, &Options::left_bytes>},
    {"", "--backend", "cpu|cuda", "where the model runs (default: cpu)",
     SetName<kBackends, &Options::engine, &Engine::backend>},
    {"", "--devices", "I,...", "CUDA's indices",
     SetParsed<chat::ParseDevices, &Options::engine, &Engine::devices>},
    {"", "--exchange", "auto|direct|host|nccl|none", "between devices",
     SetName<kPaths, &Options::engine, &Engine::exchange>},
    {"", "--synthetic-layers", "N", "random weights of N layers",
     SetCount<&Options::engine, &Engine::synthetic_layers>},
    {"", "--mix", "NAME", "their types, as in a public GGUF file",
     SetText<&Options::engine, &Engine::synthetic, &SyntheticOptions::mix>},
    {"", "--router-skew", "X", "routers that choose few experts often",
     SetFloat<&Options::engine, &Engine::synthetic, &SyntheticOptions::skew>},
    {"", "--disk-file", "FILE", "elements of the experts on disk",
     SetText<&Options::engine, &Engine::synthetic, &SyntheticOptions::file>},
    {"", "--contexts", "N,...", "tokens before a step (default: 2048)",
     SetCounts<&Options::contexts>},
    {"", "--own-tokens", "N", "of them computed by each session (default: 16)",
     SetCount<&Options::own_tokens>},
    {"", "--sessions", "N,...", "sessions in a step (default: 1)", SetCounts<&Options::sessions>},
    {"", "--prefills", "N,...", "prompts to measure", SetCounts<&Options::prefills>},
    {"", "--chunk", "N", "tokens of a prompt in a step (default: 4096)",
     SetCount<&Options::engine, &Engine::prefill_chunk_tokens>},
    {"", "--warm", "N", "steps before those that are measured (default: 8)",
     SetCount<&Options::warm_steps>},
    {"", "--steps", "N", "steps to measure (default: 32)", SetCount<&Options::steps>},
    {"", "--drafts", "N", "also measure drafts of N tokens", SetCount<&Options::drafts>},
    {"", "--temperature", "T", "of sampling (default: 1)", SetFloat<&Options::temperature>},
    {"", "--operators", "", "print the time of each operator",
     chat::SetFlag<true, &Options::operators>},
    {"", "--without-weights", "", "the same launches, without the bytes of weights",
     chat::SetFlag<true, &Options::without_weights>},
    {"", "--leave-out", "", "also measure steps without each operator",
     chat::SetFlag<true, &Options::leave_out>},
    {"", "--no-graphs", "", "launch without CUDA graphs",
     chat::SetFlag<false, &Options::engine, &Engine::graphs>},
    {"", "--step-limit", "", "watch each step, as the library does",
     [](Options* o, const std::string&, const std::string&) {
       o->engine.step_limit = std::chrono::minutes(1);
     }},
    {"", "--tuning", "DIR", "tuning files", SetText<&Options::engine, &Engine::tuning_dir>},
    {"", "--cache-format", "packed|bf16|fp8_per_tensor", "of the cache's rows",
     SetName<kFormats, &Options::engine, &Engine::cache_format>},
    {"", "--device-weights", "GB", "weights in each device's memory",
     SetParsed<chat::ParseGigabytes, &Options::engine, &Engine::weight_budgets,
               &ExpertBudgets::device_bytes>},
    {"", "--host-weights", "GB", "experts in the host's memory",
     SetParsed<chat::ParseGigabytes, &Options::engine, &Engine::weight_budgets,
               &ExpertBudgets::host_bytes>},
    {"", "--threads", "N", "of the CPU", SetCount<&Options::engine, &Engine::threads>},
};

}  // namespace

std::string BenchDecodeUsage() {
  return "usage: bench_decode [options] MODEL_DIR\n" + chat::HelpLines<Options>(kOptions);
}

BenchDecodeOptions ParseBenchDecode(int argc, const char* const* argv) {
  BenchDecodeOptions options;
  options.engine.prefill_chunk_tokens = 4096;
  if (argc < 2) throw chat::Failure{chat::kUsageError, "MODEL_DIR is missing"};
  chat::ParseOptions<Options>(argc - 1, argv, {kOptions}, &options,
                              "; MODEL_DIR is the last argument");
  options.folder = chat::ParseFolder("MODEL_DIR", argv[argc - 1]);
  if (*std::min_element(options.contexts.begin(), options.contexts.end()) <= options.own_tokens)
    throw chat::Failure{chat::kUsageError, "--contexts: not above --own-tokens"};
  // Steps of zeros whose launches are left out, too, end at the guard against frozen logits.
  if (options.without_weights && options.leave_out)
    throw chat::Failure{chat::kUsageError, "--without-weights: not with --leave-out"};
  return options;
}

}  // namespace dsv4
