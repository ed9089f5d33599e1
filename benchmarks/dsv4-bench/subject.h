// SPDX-License-Identifier: Apache-2.0
// The subject of a measurement: an engine with one combination of options, its prompts, and the
// fields that all its records share.
#pragma once

#include <atomic>
#include <cstdint>
#include <dsv4/dsv4.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/dsv4-bench/options.h"
#include "benchmarks/dsv4-bench/record.h"
#include "benchmarks/dsv4-bench/synthetic_folder.h"

namespace bench {

// A model's folder and one combination of the options that it is opened with.
struct EngineSettings {
  std::string model = {};
  dsv4::EngineOptions options = {};
  std::string numerics = {}, cache_format = {};  // settings; "": the default
};

// Tokens that a timed section chose, and of what drafts.
struct Speculation {
  int64_t drafted = 0, accepted = 0, steps = 0;
  bool stopped = false;  // a session drafted no more: too few were accepted

  void Add(const dsv4::SessionStats& stats);
  void AddTo(Record* record, int32_t draft_tokens) const;
};

// Throws chat::Failure and dsv4::Error. Its const functions are concurrent.
class Subject {
 public:
  Subject(EngineSettings settings, const Options& options, bool show_progress);

  const dsv4::EngineInfo& info() const { return info_; }
  // CUDA's indices of the devices; none with the CPU backend.
  std::vector<int32_t> gpus() const;

  const dsv4::Engine& engine() const { return *engine_; }

  // An empty session that shares nothing with any other.
  dsv4::Session OpenSession(float temperature, int64_t max_tokens = -1) const;

  // `count` tokens of prompt: of the text, over and over, beginning `stream` times `count` tokens
  // into it; or random ones, others for each stream.
  std::vector<int32_t> Prompt(uint64_t stream, int64_t count) const;

  // The first fields of all records: build, device, model, formats, options.
  void AddTo(Record* record, float temperature) const;
  // Reads of routed experts since the record before. Called for one record after the other.
  void AddExpertReads(Record* record) const;

 private:
  void Open(bool show_progress);
  void ReadText();
  // Returns the text's tokens.
  std::vector<int32_t> TimeTokenizer(const std::string& text);

  EngineSettings settings_;
  const Options* options_;
  std::optional<SyntheticFolder> synthetic_;
  std::optional<dsv4::Engine> engine_;
  dsv4::EngineInfo info_;
  mutable dsv4::EngineMetrics recorded_ = DSV4_ENGINE_METRICS_INIT;  // of the record before
  dsv4::EngineIdentity identity_;
  double open_seconds_ = 0;
  std::optional<dsv4::TokenizerView> tokenizer_;  // where the model has one
  std::vector<int32_t> text_;                     // empty: prompts are random
  int64_t tokenized_tokens_ = 0;
  double tokenize_seconds_ = 0;
  mutable std::atomic<uint64_t> salt_{0};
};

}  // namespace bench
