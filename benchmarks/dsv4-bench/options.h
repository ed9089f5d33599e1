// SPDX-License-Identifier: Apache-2.0
// The command line of dsv4-bench. If options have lists, every combination is measured.
#pragma once

#include <dsv4/engine.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bench {

enum class Format { kMarkdown, kCsv, kJson, kJsonLines };

struct Options {
  std::vector<std::string> models;  // folders
  // Tests: prompts alone, generation alone, both; each at every depth.
  std::vector<int64_t> prompts, generations, depths;
  std::vector<std::pair<int64_t, int64_t>> prompts_with_generation;
  // 0: the model's own weights; else random ones for this many of its layers.
  int32_t synthetic_layers = 0;
  std::string mix;  // of their types
  int32_t repetitions = 5;
  bool warmup = true;
  std::string text_file;  // the text of prompts; empty: random tokens

  // Sessions at the same time, each with every prompt and generation length.
  bool serve = false;
  std::vector<int32_t> concurrencies;
  int32_t requests = 32;

  std::vector<dsv4_backend> backends;
  std::vector<std::string> numerics, cache_formats;  // settings of the engine; "": the default
  std::vector<int32_t> devices;                      // of every engine; empty: the backend's first
  std::vector<int32_t> threads, prefill_chunks, drafts;
  int64_t device_weights = 0, host_weights = 0;  // most bytes; 0 = no limit
  std::string expert_profile;
  std::string drafter_model;
  std::string tuning_dir;  // empty: the library's own tables
  dsv4_drafter drafter = DSV4_DRAFTER_AUTO;
  std::vector<int64_t> contexts;  // 0: as many tokens as the tests need
  std::vector<float> temperatures;
  int32_t top_k = 0;
  float top_p = 1, min_p = 0;
  uint64_t seed = 0;

  Format format = Format::kMarkdown;
  bool progress = false;  // on standard error, also where that is no terminal
  bool help = false, version = false;
};

// Throws a chat::Failure that names the option and the value. Does not open files.
Options ParseOptions(int argc, const char* const* argv);

std::string HelpText();

}  // namespace bench
