// SPDX-License-Identifier: Apache-2.0
// dsv4-bench: the speed of a model on this machine, as records for people and programs. Everything
// it knows of the model goes through the public headers; reading files, writing and signals it
// shares with dsv4-chat.
#include <algorithm>
#include <dsv4/dsv4.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/dsv4-bench/options.h"
#include "benchmarks/dsv4-bench/record.h"
#include "benchmarks/dsv4-bench/serving.h"
#include "benchmarks/dsv4-bench/speed.h"
#include "benchmarks/dsv4-bench/subject.h"
#include "examples/console/command_line.h"
#include "examples/console/failure.h"
#include "examples/console/hub_models.h"
#include "examples/console/terminal.h"

namespace bench {
namespace {

using chat::Failure;

constexpr int64_t kBlockTokens = 256;  // what a session holds is rounded up to this

std::vector<SpeedTest> SpeedTests(const Options& options) {
  std::vector<SpeedTest> tests;
  for (const int64_t depth : options.depths) {
    const auto add = [&](int64_t prompt, int64_t generated) {
      if (prompt + generated > 0)
        tests.push_back({.prompt = prompt, .generated = generated, .depth = depth});
    };
    for (const int64_t prompt : options.prompts) add(prompt, 0);
    for (const int64_t generated : options.generations) add(0, generated);
    for (const auto& [prompt, generated] : options.prompts_with_generation) add(prompt, generated);
  }
  return tests;
}

std::vector<ServingTest> ServingTests(const Options& options) {
  std::vector<ServingTest> tests;
  for (const int64_t prompt : options.prompts) {
    for (const int64_t generated : options.generations) {
      for (const int32_t concurrency : options.concurrencies) {
        tests.push_back({.prompt = prompt,
                         .generated = generated,
                         .concurrency = concurrency,
                         .requests = options.requests});
      }
    }
  }
  return tests;
}

// `engines` with every value of `values`, which `set` puts into one.
template <class T, class Set>
void Multiply(std::vector<EngineSettings>* engines, const std::vector<T>& values, Set&& set) {
  std::vector<EngineSettings> product;
  for (const EngineSettings& engine : *engines) {
    for (const T& value : values) {
      product.push_back(engine);
      set(&product.back(), value);
    }
  }
  *engines = std::move(product);
}

template <class T>
void Multiply(std::vector<EngineSettings>* engines, const std::vector<T>& values,
              T dsv4::EngineOptions::*option) {
  Multiply(engines, values,
           [option](EngineSettings* engine, const T& value) { engine->options.*option = value; });
}

std::vector<EngineSettings> Engines(const Options& options) {
  using Engine = dsv4::EngineOptions;
  std::vector<EngineSettings> engines(1);
  Multiply(&engines, options.models,
           [](EngineSettings* engine, const std::string& model) { engine->model = model; });
  Multiply(&engines, options.backends, &Engine::backend);
  Multiply(&engines, options.numerics,
           [](EngineSettings* engine, const std::string& name) { engine->numerics = name; });
  Multiply(&engines, options.cache_formats,
           [](EngineSettings* engine, const std::string& name) { engine->cache_format = name; });
  Multiply(&engines, options.threads, &Engine::threads);
  Multiply(&engines, options.prefill_chunks, &Engine::prefill_chunk_tokens);
  // In the library, 0 is the default and -1 none.
  std::vector<int32_t> drafts = options.drafts;
  for (int32_t& most : drafts) most = most == 0 ? -1 : most;
  Multiply(&engines, drafts, &Engine::max_draft_tokens);
  Multiply(&engines, options.contexts, &Engine::context_tokens);
  return engines;
}

// Every engine with every test of one kind: `sessions` at a time, and a fork of one. `measure`
// gives a test's record.
template <class Test>
void MeasureAll(
    const Options& options, const std::vector<Test>& tests, int32_t sessions,
    const std::function<Record(const Subject&, const Test&, float, const Options&)>& measure,
    Output* output) {
  int64_t needed = 0;
  for (const Test& test : tests) needed = std::max(needed, test.context_tokens());
  const bool shows = options.progress || chat::IsTerminal(chat::kStderr);
  for (EngineSettings& settings : Engines(options)) {
    dsv4::EngineOptions& open = settings.options;
    if (open.context_tokens == 0) open.context_tokens = needed;
    open.max_sessions = sessions + 1;
    open.cache_tokens = sessions * (open.context_tokens + kBlockTokens) + kBlockTokens;
    const Subject subject(settings, options, chat::IsTerminal(chat::kStderr));
    for (const float temperature : options.temperatures) {
      for (const Test& test : tests) {
        if (chat::Interrupted()) throw Failure{chat::kInterrupted, ""};
        if (shows) chat::WriteErr("dsv4-bench: " + settings.model + ": " + test.name() + "\n");
        GpuSampler gpus(subject.gpus());
        Record record = measure(subject, test, temperature, options);
        AddTo(&record, gpus.Stop());
        output->Write(record);
      }
    }
  }
}

void Measure(const Options& options, Output* output) {
  if (options.serve) {
    const int32_t sessions =
        *std::max_element(options.concurrencies.begin(), options.concurrencies.end());
    return MeasureAll<ServingTest>(options, ServingTests(options), sessions, &MeasureServing,
                                   output);
  }
  const std::vector<SpeedTest> tests = SpeedTests(options);
  if (tests.empty())
    throw Failure{chat::kUsageError, "nothing to measure: -p and -n are 0, and there is no -pg"};
  MeasureAll<SpeedTest>(options, tests, 1, &MeasureSpeed, output);
}

int Run(int argc, char** argv) {
  Options options = ParseOptions(argc, argv);
  if (const std::string text = chat::HelpOrVersion(options, HelpText()); !text.empty()) {
    return chat::WriteOut(text), chat::kOk;
  }
  for (std::string& model : options.models) model = chat::FindModel(model);
  Output output(options.format, options.serve);
  try {
    Measure(options, &output);
  } catch (...) {
    // What is there is whole JSON all the same.
    output.End();
    throw;
  }
  output.End();
  return chat::kOk;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    chat::InstallSignals();
    return bench::Run(argc, argv);
  } catch (...) {
    return chat::ReportFailure("dsv4-bench");
  }
}
