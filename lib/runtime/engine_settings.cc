// SPDX-License-Identifier: Apache-2.0
// What a model's configuration files and the options say of an engine, checked against each other.
#include <algorithm>
#include <string>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/engine.h"
#include "lib/runtime/group_options.h"
#include "lib/sampling/params.h"
#include "lib/sampling/sampler.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int32_t kDefaultSessions = 4;
constexpr int32_t kDefaultPrefillChunk = 256;  // tokens; past it the kernels gain nothing
constexpr int32_t kMaxSessions = 4096;
// With experts outside a device's memory or computed by the CPU: each step of a prompt reads nearly
// all of them.
constexpr int64_t kBudgetedPrefillChunk = 4096;
constexpr int32_t kMaxPrefillChunk = 65536;

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

// An impossible value in a model's file is a fault of the file: the caller's arguments are right.
absl::Status FaultOfFile(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? Corrupt(status.message()) : status;
}

// Whether rows and index keys are what the published numerics make of them. Where a point is
// omitted, they may be numbers that only f32 holds.
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

}  // namespace

// Reads the configuration files, and settles the options.
absl::Status Engine::Configure(const std::string& folder, const EngineOptions& options) {
  const std::string config_path = folder + "/config.json";
  DSV4_ASSIGN_OR_RETURN(const std::string config_json, ReadFile(config_path, kMaxConfigBytes));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(config_json, config_path);
  if (!config.ok()) return FaultOfFile(config.status());
  facts_.config = *std::move(config);
  // Random weights must not be taken for those that are there.
  if (facts_.config.synthetic_layers > 0 && Checkpoint::LiesIn(folder)) {
    return Corrupt(config_path, ": dsv4_synthetic_layers is for folders without weights; ", folder,
                   " has some");
  }
  if (options.synthetic_layers > facts_.config.num_hidden_layers) {
    return InvalidArgument("option synthetic_layers = ", options.synthetic_layers, "; ",
                           config_path, " has ", facts_.config.num_hidden_layers, " layers");
  }
  if (options.synthetic_layers > 0) facts_.config.synthetic_layers = options.synthetic_layers;
  if (facts_.config.synthetic_layers > 0)
    facts_.config = FirstLayers(facts_.config, facts_.config.synthetic_layers);
  config_hash_ = HashOf(config_json);
  const std::string generation_path = folder + "/generation_config.json";
  absl::StatusOr<std::string> generation_json = ReadFile(generation_path, kMaxConfigBytes);
  if (generation_json.ok()) {
    absl::StatusOr<GenerationConfig> generation =
        ParseGenerationConfig(*generation_json, generation_path);
    if (!generation.ok()) return FaultOfFile(generation.status());
    facts_.generation = *std::move(generation);
  } else if (!absl::IsNotFound(generation_json.status())) {
    return generation_json.status();
  }
  for (const std::string& key : facts_.generation.unused_keys) {
    Log(LogLevel::kInfo, generation_path, ": ", Quoted(key), " is not followed");
  }
  if (options.canary && facts_.config.synthetic_layers == 0) {
    DSV4_ASSIGN_OR_RETURN(canary_, ReadCanary(folder, facts_.config.vocab_size));
  }
  facts_.eos_tokens = facts_.config.eos_token_ids;
  for (const int32_t token : facts_.generation.eos_token_ids) {
    if (token < 0 || token >= facts_.config.vocab_size) {
      return Corrupt(generation_path, ": eos_token_id ", token, " is not in 0..",
                     facts_.config.vocab_size - 1);
    }
    facts_.eos_tokens.push_back(token);
  }
  return Settle(options);
}

// Settles every option against the model's configuration.
absl::Status Engine::Settle(const EngineOptions& options) {
  DSV4_RETURN_IF_ERROR(CheckDevices(options));
  DSV4_RETURN_IF_ERROR(CheckGroup(options));
  const int ranks = options.group.grouped()
                        ? options.group.ranks
                        : static_cast<int>(std::max<size_t>(options.devices.size(), 1));
  absl::StatusOr<Shards> shards = Shards::Of(facts_.config, ranks);
  if (!shards.ok()) {
    return WithArgument(shards.status(), options.group.grouped() ? "group_size" : "devices");
  }
  shards_ = *std::move(shards);
  first_rank_ = options.group.rank;
  if (options.numerics != Numerics::kPublished && options.backend != Backend::kReference) {
    return Unsupported("numerics other than published run on the reference backend only, not on ",
                       BackendName(options.backend));
  }
  DSV4_RETURN_IF_ERROR(ReadTuning(options));
  DSV4_RETURN_IF_ERROR(CheckBudgets(options));
  DSV4_RETURN_IF_ERROR(CheckCpuShare(options));
  facts_.info.backend = options.backend;
  facts_.info.numerics = options.numerics;
  DSV4_ASSIGN_OR_RETURN(facts_.info.cache_format, CacheFormat(options));
  facts_.key_format = HasBf16Numbers(options) ? RowFormat::kIndexFp4 : RowFormat::kF32;
  DSV4_ASSIGN_OR_RETURN(
      facts_.info.context_tokens,
      OptionOr("context_tokens", options.context_tokens, facts_.config.max_position_embeddings,
               facts_.config.max_position_embeddings));
  DSV4_ASSIGN_OR_RETURN(facts_.info.cache_tokens,
                        OptionOr<int64_t>("cache_tokens", options.cache_tokens,
                                          facts_.info.context_tokens, int64_t{1} << 40));
  DSV4_ASSIGN_OR_RETURN(facts_.info.max_sessions, OptionOr("max_sessions", options.max_sessions,
                                                           kDefaultSessions, kMaxSessions));
  const auto chunk =
      options.weight_budgets.limited() || options.weight_budgets.cpu_experts > 0
          ? static_cast<int32_t>(std::min(kBudgetedPrefillChunk, facts_.info.context_tokens))
          : kDefaultPrefillChunk;
  DSV4_ASSIGN_OR_RETURN(
      facts_.info.prefill_chunk_tokens,
      OptionOr("prefill_chunk_tokens", options.prefill_chunk_tokens, chunk, kMaxPrefillChunk));
  DSV4_ASSIGN_OR_RETURN(
      facts_.info.max_draft_tokens,
      OptionOr<int32_t>("max_draft_tokens", options.max_draft_tokens, 0, kMaxDraftTokens));
  return absl::OkStatus();
}

// A folder without a tokenizer opens all the same; one with a broken or foreign tokenizer does not.
absl::Status Engine::LoadTokenizer(const std::string& folder) {
  facts_.token_limit = static_cast<int32_t>(facts_.config.vocab_size);
  const std::string path = folder + "/tokenizer.json";
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Load(path);
  if (absl::IsNotFound(tokenizer.status())) return absl::OkStatus();
  if (!tokenizer.ok()) return tokenizer.status();
  facts_.tokenizer = *std::move(tokenizer);
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  tokenizer_hash_ = HashOf(file.bytes());
  if (facts_.tokenizer->max_id() >= facts_.config.vocab_size) {
    return Corrupt(path, ": token id ", facts_.tokenizer->max_id(),
                   " is beyond the model's vocab_size ", facts_.config.vocab_size);
  }
  facts_.token_limit = facts_.tokenizer->vocab_size();
  for (int32_t token = 0; token < facts_.token_limit; ++token) {
    if (!facts_.tokenizer->HasToken(token)) facts_.token_gaps.push_back(token);
  }
  with_text_ = MaskOfText(facts_.config.vocab_size, facts_.token_limit, facts_.token_gaps);
  facts_.info.has_tokenizer = true;
  facts_.chat_encoder = FindChatEncoder(folder);
  return absl::OkStatus();
}

absl::Status Engine::CheckBudgets(const EngineOptions& options) const {
  const ExpertBudgets& budgets = options.weight_budgets;
  for (const auto& [name, bytes] : {std::pair("device_weight_bytes", budgets.device_bytes),
                                    std::pair("host_weight_bytes", budgets.host_bytes)}) {
    if (bytes < 0) {
      return WithArgument(InvalidArgument("option ", name, " = ", bytes, " is negative"), name);
    }
  }
  const bool cuda = options.backend == Backend::kCuda;
  if (budgets.limited() && !cuda) {
    return WithArgument(
        Unsupported("option device_weight_bytes = ", budgets.device_bytes, ": backend ",
                    BackendName(options.backend),
                    " has no memory but the host's; its option is host_weight_bytes"),
        "device_weight_bytes");
  }
  if (cuda && budgets.host_bytes > 0 && !budgets.limited() && budgets.cpu_experts == 0) {
    return WithArgument(
        InvalidArgument("option host_weight_bytes = ", budgets.host_bytes,
                        " without device_weight_bytes: all experts are then on the device"),
        "host_weight_bytes");
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckCpuShare(const EngineOptions& options) const {
  const int64_t experts = options.weight_budgets.cpu_experts;
  if (experts == 0) return absl::OkStatus();
  const int64_t most = facts_.config.n_routed_experts - 1;
  if (experts < 0 || experts > most) {
    return WithArgument(InvalidArgument("option cpu_experts = ", experts, " is not in 0..", most,
                                        ": config.json has ", most + 1,
                                        " routed experts, and the device needs one"),
                        "cpu_experts");
  }
  if (options.backend != Backend::kCuda) {
    return WithArgument(
        Unsupported("option cpu_experts = ", experts, ": backend ", BackendName(options.backend),
                    " computes all experts on the CPU; there is none to share with"),
        "cpu_experts");
  }
  if (ranks() > 1) {
    return WithArgument(Unsupported("option cpu_experts = ", experts, " with ", ranks(),
                                    " devices; only one device is supported with it"),
                        "cpu_experts");
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckDevices(const EngineOptions& options) const {
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

}  // namespace dsv4
