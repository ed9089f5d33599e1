// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/subject.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <utility>

#include "benchmarks/clock.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/progress_bar.h"
#include "examples/console/struct_fields.h"

namespace bench {
namespace {

using chat::Failure;
using dsv4::Clock;
using dsv4::SecondsSince;

constexpr int64_t kTokenizedTokens = 4096;  // of random prompts
constexpr int kTokenizerRuns = 5;
constexpr int32_t kFirstRandomToken = 3;  // past those that begin, end and pad

// "dsv4 VERSION (COMMIT), ...": <dsv4/abi.h> promises this much.
std::string BuildCommit() {
  const std::string build = dsv4_get_build_info();
  const size_t begin = build.find('(') + 1;
  return build.substr(begin, build.find(')') - begin);
}

std::string UtcTime() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

void Speculation::Add(const dsv4::SessionStats& stats) {
  drafted += stats.drafted_tokens;
  accepted += stats.accepted_tokens;
  steps += stats.draft_steps;
  stopped = stopped || (stats.alarms & DSV4_ALARM_FEW_ACCEPTED) != 0;
}

void Speculation::AddTo(Record* record, int32_t draft_tokens) const {
  const auto drafts = static_cast<double>(drafted), taken = static_cast<double>(accepted);
  record->Integer("draft_tokens", draft_tokens);
  if (steps == 0) {
    record->Missing("acceptance_rate");
    record->Missing("acceptance_length");
  } else {
    record->Real("acceptance_rate", drafted == 0 ? 0 : taken / drafts);
    record->Real("acceptance_length", taken / static_cast<double>(steps) + 1);
  }
  record->Integer("drafted_tokens", drafted);
  record->Integer("accepted_tokens", accepted);
  record->Text("draft_stop", stopped ? "few_accepted" : "none");
}

Subject::Subject(EngineSettings settings, const Options& options, bool show_progress)
    : settings_(std::move(settings)), options_(&options) {
  if (options.synthetic_layers > 0) {
    synthetic_.emplace(settings_.model, options.synthetic_layers, options.mix);
  }
  Open(show_progress);
  info_ = engine_->info();
  identity_ = engine_->identity();
  if (info_.has_tokenizer != 0) tokenizer_ = engine_->tokenizer();
  ReadText();
}

void Subject::Open(bool show_progress) {
  chat::ProgressBar bar("loading " + settings_.model, show_progress);
  settings_.options.progress = bar.Callback();
  settings_.options.devices = options_->devices;
  settings_.options.drafter = options_->drafter;
  settings_.options.device_weight_bytes = options_->device_weights;
  settings_.options.host_weight_bytes = options_->host_weights;
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) settings_.options.settings.push_back(key + ("=" + value));
  };
  set("numerics", settings_.numerics);
  set("cache_format", settings_.cache_format);
  set("tuning_dir", options_->tuning_dir);
  set("expert_profile", options_->expert_profile);
  set("drafter_model", options_->drafter_model);
  const Clock::time_point start = Clock::now();
  engine_.emplace(synthetic_ ? synthetic_->path() : settings_.model, settings_.options);
  open_seconds_ = SecondsSince(start);
}

void Subject::ReadText() {
  if (options_->text_file.empty()) {
    if (tokenizer_) TimeTokenizer(tokenizer_->Decode(Prompt(0, kTokenizedTokens)));
    return;
  }
  const std::string text = chat::ReadWholeFile(options_->text_file);
  if (text.empty()) throw Failure{chat::kUsageError, options_->text_file + ": is empty"};
  if (!tokenizer_) {
    throw Failure{chat::kModelError,
                  settings_.model + ": has no tokenizer.json, which --file needs"};
  }
  text_ = TimeTokenizer(text);
}

// The fastest run: what disturbs only adds.
std::vector<int32_t> Subject::TimeTokenizer(const std::string& text) {
  std::vector<int32_t> tokens;
  for (int run = 0; run < kTokenizerRuns; ++run) {
    const Clock::time_point start = Clock::now();
    tokens = tokenizer_->Encode(text);
    const double seconds = SecondsSince(start);
    tokenize_seconds_ = run == 0 ? seconds : std::min(tokenize_seconds_, seconds);
  }
  tokenized_tokens_ = static_cast<int64_t>(tokens.size());
  return tokens;
}

dsv4::Session Subject::OpenSession(float temperature, int64_t max_tokens) const {
  dsv4::SessionOptions open;
  // 0 turns a step off; in the library it is the model's value.
  open.sampling.temperature = temperature == 0 ? DSV4_GREEDY : temperature;
  open.sampling.top_k = options_->top_k == 0 ? -1 : options_->top_k;
  open.sampling.top_p = options_->top_p;
  open.sampling.min_p = options_->min_p == 0 ? -1 : options_->min_p;
  open.sampling.repetition_penalty = 1;
  open.sampling.seed = options_->seed;
  open.sampling.max_tokens = max_tokens;
  open.cache_salt = ++salt_;
  return dsv4::Session(*engine_, open);
}

std::vector<int32_t> Subject::Prompt(uint64_t stream, int64_t count) const {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  if (!text_.empty()) {
    size_t at = static_cast<size_t>(stream * static_cast<uint64_t>(count) % text_.size());
    for (int32_t& token : tokens) {
      token = text_[at];
      at = (at + 1) % text_.size();
    }
    return tokens;
  }
  std::mt19937_64 random(options_->seed + stream);
  const int32_t vocab = tokenizer_ ? tokenizer_->vocab_size() : 0;
  const int32_t end = vocab > 0 ? std::min(vocab, info_.vocab_size) : info_.vocab_size;
  const int32_t first = end > kFirstRandomToken ? kFirstRandomToken : 0;
  for (int32_t& token : tokens)
    token = first + static_cast<int32_t>(random() % static_cast<uint64_t>(end - first));
  return tokens;
}

std::vector<int32_t> Subject::gpus() const {
  if (info_.backend != DSV4_BACKEND_CUDA) return {};
  return options_->devices.empty() ? std::vector<int32_t>{0} : options_->devices;
}

void Subject::AddTo(Record* record, float temperature) const {
  record->Text("test_time", UtcTime());
  record->Text("build_commit", BuildCommit());
  record->Text("build_info", dsv4_get_build_info());
  record->Text("device", identity_.device);
  record->Text("backend", chat::BackendName(info_.backend));
  record->Text("numerics", info_.numerics);
  record->Integer("n_devices", info_.device_count);
  record->Integer("n_threads", info_.threads);
  record->Text("model", settings_.model);
  record->Integer("model_size", static_cast<int64_t>(info_.weight_bytes));
  record->Text("checkpoint_fingerprint", identity_.fingerprint);
  const std::string random = synthetic_ ? "random " : "";
  record->Text("weight_format", random + identity_.weight_format);
  record->Integer("synthetic_layers", options_->synthetic_layers);
  record->Text("cache_format", info_.cache_format);
  record->Text("drafter", chat::DrafterName(info_.drafter));
  record->Integer("context_tokens", info_.context_tokens);
  record->Integer("prefill_chunk_tokens", info_.prefill_chunk_tokens);
  record->Text("prompt_source", options_->text_file.empty() ? "random" : options_->text_file);
  record->Real("temperature", temperature);
  record->Integer("top_k", options_->top_k);
  record->Real("top_p", options_->top_p);
  record->Real("min_p", options_->min_p);
  record->Text("seed", std::to_string(options_->seed));
  record->Real("open_seconds", open_seconds_);
  record->Integer("tokenize_tokens", tokenized_tokens_);
  if (tokenized_tokens_ > 0) {
    record->Real("tokenize_tps", static_cast<double>(tokenized_tokens_) / tokenize_seconds_);
  } else {
    record->Missing("tokenize_tps");
  }
}

void Subject::AddExpertReads(Record* record) const {
  const dsv4::EngineMetrics before = std::exchange(recorded_, engine_->metrics());
  const auto since = [&](const char* name, uint64_t dsv4::EngineMetrics::*field) {
    const auto count = static_cast<int64_t>(recorded_.*field - before.*field);
    record->Integer(name, count);
    return static_cast<double>(count);
  };
  const double device = since("expert_device_reads", &dsv4::EngineMetrics::device_expert_reads);
  const double host = since("expert_host_reads", &dsv4::EngineMetrics::host_expert_reads);
  const double disk = since("expert_disk_reads", &dsv4::EngineMetrics::disk_expert_reads);
  record->Real("expert_hit_rate", device / (device + host + disk));
  since("expert_device_bytes", &dsv4::EngineMetrics::device_read_bytes);
  since("expert_host_bytes", &dsv4::EngineMetrics::host_read_bytes);
  record->Real("expert_device_seconds", recorded_.device_read_seconds - before.device_read_seconds);
  record->Real("expert_host_seconds", recorded_.host_read_seconds - before.host_read_seconds);
  since("expert_streamed_bytes", &dsv4::EngineMetrics::streamed_bytes);
  record->Real("expert_stream_seconds", recorded_.stream_seconds - before.stream_seconds);
  since("expert_disk_bytes", &dsv4::EngineMetrics::disk_read_bytes);
  record->Real("expert_disk_seconds", recorded_.disk_read_seconds - before.disk_read_seconds);
  since("expert_moves", &dsv4::EngineMetrics::moved_experts);
}

}  // namespace bench
