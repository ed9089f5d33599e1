// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine_settings.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/builtin.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/config/drafter_config.h"
#include "lib/config/model_files.h"
#include "lib/engine/group_options.h"
#include "lib/sampling/sampler.h"
#include "lib/text/completion_markup.h"
#include "lib/weights/gguf_tensors.h"
#include "lib/weights/synthetic.h"

namespace dsv4 {
namespace {

constexpr int32_t kDefaultSessions = 4;
constexpr int32_t kDefaultPrefillChunk = 256;  // tokens; past it a CPU's kernels gain nothing
constexpr int64_t kCudaPrefillChunk = 2048;
constexpr int32_t kMaxSessions = 4096;
// With experts outside a device's memory or computed by the CPU: each step of a prompt reads nearly
// all of them.
constexpr int64_t kBudgetedPrefillChunk = 4096;
constexpr int32_t kMaxPrefillChunk = 65536;
constexpr char kDrafterModel[] = "drafter_model";

// `value`, or `fallback` for 0; InvalidArgument outside 1..max.
template <class T>
absl::StatusOr<T> OptionOr(const char* name, T value, T fallback, T max) {
  if (value == 0) return std::min(fallback, max);
  if (value < 0 || value > max) {
    return WithArgument(InvalidArgument("option ", name, " = ", value, " is not in 1..", max),
                        name);
  }
  return value;
}

// Whether rows and index keys are those of published numerics. If a rounding point is omitted, they
// may be numbers that only f32 can represent.
bool HasBf16Numbers(const EngineOptions& options) {
  return options.numerics == Numerics::kPublished && options.omitted_points == 0;
}

// The rows' format: the option's, where these numerics can use it.
absl::StatusOr<RowFormat> CacheFormat(const EngineOptions& options) {
  const bool bf16_numbers = HasBf16Numbers(options);
  if (!options.cache_format) return bf16_numbers ? RowFormat::kPacked : RowFormat::kF32;
  const RowFormat format = *options.cache_format;
  const auto refused = [&](const auto&... reason) {
    return WithArgument(Unsupported("option cache_format = ", RowFormatName(format), " with ",
                                    NumericsName(options.numerics), " numerics: ", reason...),
                        "cache_format");
  };
  switch (format) {
    case RowFormat::kPacked:
    case RowFormat::kBf16:
      if (bf16_numbers) return format;
      return refused("it would round their rows; use f32 or fp8_per_tensor");
    case RowFormat::kF32:
      if (!bf16_numbers) return format;
      return refused("their rows are bf16 numbers, which packed and bf16 hold exactly");
    case RowFormat::kFp8PerTensor:
      return format;
    case RowFormat::kIndexFp4:
      break;
  }
  return InvalidArgument("option cache_format = ", RowFormatName(format),
                         " is for index keys; expected packed, bf16, f32 or fp8_per_tensor");
}

absl::Status CheckBudgets(const EngineOptions& options) {
  const ExpertBudgets& budgets = options.weight_budgets;
  for (const auto& [name, bytes] : {std::pair("device_weight_bytes", budgets.device_bytes),
                                    std::pair("host_weight_bytes", budgets.host_bytes)}) {
    if (bytes < 0) {
      return WithArgument(InvalidArgument("option ", name, " = ", bytes, " is negative"), name);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStepLimit(const EngineOptions& options) {
  if (!options.step_limit || options.backend == Backend::kCuda) return absl::OkStatus();
  return WithArgument(Unsupported("option step_limit_seconds: backend ",
                                  BackendName(options.backend), " waits for no driver"),
                      "step_limit_seconds");
}

absl::Status CheckDevices(const EngineOptions& options) {
  const std::vector<int32_t>& devices = options.devices;
  if (devices.size() <= 1) return absl::OkStatus();  // Device::Check says the rest
  const auto refused = [](absl::Status status) {
    return WithArgument(std::move(status), "devices");
  };
  const auto count = static_cast<int32_t>(devices.size());
  for (auto device = devices.begin(); device != devices.end(); ++device) {
    if (options.backend == Backend::kCuda) {
      DSV4_RETURN_IF_ERROR(refused(Device::Check({.kind = DeviceKind::kCuda, .index = *device})));
    } else if (*device < 0 || *device >= count) {
      return refused(InvalidArgument("option devices names ", *device, "; the ", count,
                                     " parts of the CPU are 0..", count - 1));
    }
    if (std::find(devices.begin(), device, *device) != device) {
      return refused(InvalidArgument("option devices names ", *device, " twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TuningFile>> ReadTuning(const EngineOptions& options) {
  if (options.tuning_dir.empty()) return std::vector<TuningFile>();
  if (options.backend != Backend::kCuda) {
    return WithArgument(
        Unsupported("option tuning_dir = ", options.tuning_dir, ": backend ",
                    BackendName(options.backend), " has no tuning tables; only backend cuda has"),
        "tuning_dir");
  }
  absl::StatusOr<std::vector<TuningFile>> files =
      ReadTuningDirectory(options.tuning_dir, BuiltinManifests());
  if (!files.ok()) return WithArgument(files.status(), "tuning_dir");
  return files;
}

// Settles every option against the model's configuration.
absl::Status SettleOptions(EngineSettings* settings) {
  const EngineOptions& options = settings->options;
  EngineFacts& facts = settings->facts;
  DSV4_RETURN_IF_ERROR(CheckDevices(options));
  DSV4_RETURN_IF_ERROR(CheckGroup(options));
  const int ranks = options.group.grouped()
                        ? options.group.ranks
                        : static_cast<int>(std::max<size_t>(options.devices.size(), 1));
  absl::StatusOr<Shards> shards = Shards::Of(facts.config, ranks);
  if (!shards.ok()) {
    return WithArgument(shards.status(), options.group.grouped() ? "group_size" : "devices");
  }
  settings->shards = *std::move(shards);
  if (options.numerics != Numerics::kPublished && options.backend != Backend::kReference) {
    return Unsupported("numerics other than published run on the reference backend only, not on ",
                       BackendName(options.backend));
  }
  DSV4_ASSIGN_OR_RETURN(settings->tuning_files, ReadTuning(options));
  DSV4_RETURN_IF_ERROR(CheckBudgets(options));
  // A backend that has no memory but the host's keeps a limit of device memory by using none.
  if (options.backend != Backend::kCuda) {
    settings->options.weight_budgets.device_bytes = 0;
    settings->options.weight_budgets.least = false;
  }
  DSV4_RETURN_IF_ERROR(CheckStepLimit(options));
  facts.info.backend = options.backend;
  facts.info.numerics = options.numerics;
  DSV4_ASSIGN_OR_RETURN(facts.info.cache_format, CacheFormat(options));
  facts.key_format = HasBf16Numbers(options) ? RowFormat::kIndexFp4 : RowFormat::kF32;
  DSV4_ASSIGN_OR_RETURN(
      facts.info.context_tokens,
      OptionOr("context_tokens", options.context_tokens, facts.config.max_position_embeddings,
               facts.config.max_position_embeddings));
  DSV4_ASSIGN_OR_RETURN(facts.info.cache_tokens,
                        OptionOr<int64_t>("cache_tokens", options.cache_tokens,
                                          facts.info.context_tokens, int64_t{1} << 40));
  DSV4_ASSIGN_OR_RETURN(facts.info.max_sessions, OptionOr("max_sessions", options.max_sessions,
                                                          kDefaultSessions, kMaxSessions));
  DSV4_ASSIGN_OR_RETURN(facts.info.prefill_chunk_tokens,
                        OptionOr("prefill_chunk_tokens", options.prefill_chunk_tokens,
                                 kDefaultPrefillChunk, kMaxPrefillChunk));
  settings->SettlePrefillChunk();
  DSV4_ASSIGN_OR_RETURN(facts.info.max_draft_tokens,
                        OptionOr<int32_t>("max_draft_tokens", options.max_draft_tokens.value_or(0),
                                          0, kMaxDraftTokens));
  return absl::OkStatus();
}

// A folder without a tokenizer opens all the same; one with a broken or foreign tokenizer does not.
absl::Status LoadText(EngineSettings* settings) {
  EngineFacts& facts = settings->facts;
  facts.token_limit = static_cast<int32_t>(facts.config.vocab_size);
  DSV4_RETURN_IF_ERROR(settings->text->Load(settings->folder, facts.config.vocab_size));
  if (!settings->text->has_tokenizer()) return absl::OkStatus();
  const Tokenizer& tokenizer = **settings->text->tokenizer();
  facts.info.has_tokenizer = true;
  facts.token_limit = tokenizer.vocab_size();
  for (int32_t token = 0; token < facts.token_limit; ++token) {
    if (!tokenizer.HasToken(token)) facts.token_gaps.push_back(token);
  }
  facts.think_token = tokenizer.FindAddedToken(markup::kThinkStart).value_or(-1);
  facts.think_end_token = tokenizer.FindAddedToken(markup::kThinkEnd).value_or(-1);
  settings->with_text = MaskOfText(facts.config.vocab_size, facts.token_limit, facts.token_gaps);
  return absl::OkStatus();
}

EngineSettings Begin(const std::string& folder, const EngineOptions& options) {
  EngineSettings settings;
  settings.folder = folder;
  settings.options = options;
  settings.options.progress = nullptr;
  settings.text = std::make_unique<EngineText>();
  return settings;
}

}  // namespace

void EngineSettings::SettlePrefillChunk() {
  if (options.prefill_chunk_tokens != 0) return;
  int64_t chunk = options.weight_budgets.limited()    ? kBudgetedPrefillChunk
                  : options.backend == Backend::kCuda ? kCudaPrefillChunk
                                                      : kDefaultPrefillChunk;
  if (chunk_limit > 0) chunk = std::min(chunk, chunk_limit);
  facts.info.prefill_chunk_tokens =
      static_cast<int32_t>(std::min(chunk, facts.info.context_tokens));
}

absl::StatusOr<std::unique_ptr<Checkpoint>> EngineSettings::OpenCheckpoint() const {
  if (facts.config.synthetic_layers > 0) {
    SyntheticOptions synthetic = options.synthetic;
    if (synthetic.mix.empty()) synthetic.mix = facts.config.synthetic_mix;
    return SyntheticCheckpoint(facts.config, synthetic);
  }
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> weights, OpenWeights(folder, facts.config));
  if (options.drafter_model.empty()) return weights;
  absl::StatusOr<std::unique_ptr<Checkpoint>> both =
      OpenWithDrafter(std::move(weights), options.drafter_model, facts.config);
  if (!both.ok()) return WithArgument(both.status(), kDrafterModel);
  return both;
}

absl::StatusOr<EngineSettings> Settle(const std::string& folder, const EngineOptions& options) {
  EngineSettings settings = Begin(folder, options);
  DSV4_ASSIGN_OR_RETURN(ModelFiles files, ReadModelFiles(folder, options.synthetic_layers));
  settings.facts.config = std::move(files.config);
  settings.facts.generation = std::move(files.generation);
  settings.facts.eos_tokens = std::move(files.eos_tokens);
  settings.config_hash = files.config_hash;
  if (!options.drafter_model.empty()) {
    ModelConfig& config = settings.facts.config;
    if (config.synthetic_layers > 0) {
      return WithArgument(InvalidArgument("option drafter_model = ", options.drafter_model,
                                          ": random weights have a drafter of their own"),
                          kDrafterModel);
    }
    DSV4_RETURN_IF_ERROR(
        WithArgument(AddDrafterConfig(options.drafter_model, &config), kDrafterModel));
  }
  DSV4_RETURN_IF_ERROR(SettleOptions(&settings));
  DSV4_RETURN_IF_ERROR(LoadText(&settings));
  return settings;
}

absl::StatusOr<EngineSettings> SettleRandom(absl::string_view config_json,
                                            const EngineOptions& options) {
  EngineSettings settings = Begin("", options);
  EngineFacts& facts = settings.facts;
  DSV4_ASSIGN_OR_RETURN(facts.config, ParseModelConfig(config_json, "random weights"));
  facts.config.synthetic_layers = facts.config.num_hidden_layers;
  facts.token_limit = static_cast<int32_t>(facts.config.vocab_size);
  facts.eos_tokens = facts.config.eos_token_ids;
  DSV4_RETURN_IF_ERROR(SettleOptions(&settings));
  return settings;
}

}  // namespace dsv4
