// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/builtin.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/memory_communicator.h"
#include "lib/io/mapped_file.h"
#include "lib/io/system_memory.h"
#include "lib/model/synthetic.h"
#include "lib/runtime/device_proof.h"
#include "lib/runtime/group_options.h"
#include "lib/sampling/params.h"
#include "lib/sampling/sampler.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int32_t kDefaultSessions = 4;
constexpr int32_t kDefaultPrefillChunk = 256;  // tokens; past it the kernels gain nothing
constexpr int32_t kMaxSessions = 4096;
constexpr int32_t kMaxPrefillChunk = 65536;
// Of a wait for another rank, which may have the work of a long prefill on a slow machine ahead of
// it. Failures are noticed at once; this ends what nobody notices.
constexpr std::chrono::minutes kExchangeLimit{10};

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

// The rows' format: the option's, where these numerics can use it.
absl::StatusOr<RowFormat> CacheFormat(const EngineOptions& options) {
  const bool published = options.numerics == Numerics::kPublished;
  // Where a point is omitted, rows may be numbers that only f32 holds.
  const bool bf16_numbers = published && options.omitted_points == 0;
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
      if (!published) return format;
      return refused("it would change their rows; use packed or bf16");
    case RowFormat::kIndexFp4:
      break;
  }
  return InvalidArgument("option cache_format = ", RowFormatName(format),
                         " is not a format of rows");
}

// Kernels of one image, so that ranks differ in nothing that they compute with.
bool AlikeForRanks(const DeviceTraits& a, const DeviceTraits& b) {
  return a.compute_capability == b.compute_capability && a.features == b.features;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint(const std::string& folder,
                                                           const ModelConfig& config,
                                                           const SyntheticOptions& synthetic) {
  if (config.synthetic_layers > 0) return SyntheticCheckpoint(config, synthetic);
  return Checkpoint::Open(folder);
}

std::vector<int32_t> DevicesOf(const EngineOptions& options) {
  return options.devices.empty() ? std::vector<int32_t>{0} : options.devices;
}

// Whether the devices are GPUs that the cuda backend is written for, and prove themselves.
// Unsupported with the reason.
absl::Status GpusFit(const EngineOptions& options) {
  constexpr int32_t kFirst = 120, kLast = 129;  // compute capabilities
  if (options.numerics != Numerics::kPublished) {
    return Unsupported(NumericsName(options.numerics), " numerics run on the reference backend");
  }
  for (const int32_t index : DevicesOf(options)) {
    const absl::StatusOr<std::unique_ptr<Device>> device =
        Device::Open({.kind = DeviceKind::kCuda, .index = index});
    if (!device.ok()) return Unsupported(device.status().message());
    const int32_t capability = (*device)->traits().compute_capability;
    if (capability < kFirst || capability > kLast) {
      return Unsupported("cuda:", index, " (", (*device)->name(), ") has compute capability ",
                         ComputeCapabilityName(capability),
                         ", for which the kernels are not written; backend cuda runs there");
    }
  }
  return ProveOnce(DevicesOf(options), options.tuning_dir);
}

EngineOptions OnGpus(EngineOptions options) {
  options.backend = Backend::kCuda;
  options.prefer_gpu = false;
  return options;
}

// What another backend may do all the same.
bool IsUnfit(const absl::Status& status) {
  return IsUnsupported(status) || IsOutOfDeviceMemory(status);
}

// Tables by which every entry with knobs runs its config of that number, modulo their count.
std::vector<TuningTable> TablesOfConfig(int32_t number) {
  std::vector<TuningTable> tables;
  for (const Manifest& manifest : BuiltinManifests()) {
    for (const KernelEntry& entry : manifest) {
      const absl::Span<const KernelConfig> configs = entry.knobs.configs;
      if (configs.empty()) continue;
      tables.push_back({&entry, configs[static_cast<size_t>(number) % configs.size()]});
    }
  }
  return tables;
}

ContentHash HashOfText(absl::string_view text) {
  return HashOf({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

absl::StatusOr<std::shared_ptr<Engine>> Engine::Open(const std::string& folder,
                                                     const EngineOptions& options) {
  if (options.group.rank != 0) {
    return WithArgument(InvalidArgument("option group_rank = ", options.group.rank,
                                        ": rank 0 of a group opens an engine; the others serve it"),
                        "group_rank");
  }
  if (!options.prefer_gpu) return OpenRanks(folder, options);
  absl::Status unfit = GpusFit(options);
  if (unfit.ok()) {
    absl::StatusOr<std::shared_ptr<Engine>> opened = OpenRanks(folder, OnGpus(options));
    if (opened.ok() || !IsUnfit(opened.status())) return opened;
    unfit = opened.status();
  }
  DSV4_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, OpenRanks(folder, options));
  engine->backend_reason_ = std::string(unfit.message());
  Log(LogLevel::kInfo, "backend ", BackendName(options.backend), ": ", engine->backend_reason_);
  return engine;
}

absl::StatusOr<EnginePlan> Engine::Plan(const std::string& folder, const EngineOptions& options) {
  if (options.prefer_gpu && GpusFit(options).ok()) {
    absl::StatusOr<EnginePlan> plan = PlanOn(folder, OnGpus(options), true);
    if (plan.ok() || !IsUnfit(plan.status())) return plan;
  }
  return PlanOn(folder, options, false);
}

absl::Status Engine::Serve(const std::string& folder, const EngineOptions& options,
                           absl::FunctionRef<bool(int64_t rows)> go_on) {
  if (options.group.rank == 0) {
    return WithArgument(
        InvalidArgument("option group_rank = 0: that process opens an engine; the others serve it"),
        "group_rank");
  }
  const bool gpu = options.prefer_gpu && GpusFit(options).ok();
  DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                        OpenRanks(folder, gpu ? OnGpus(options) : options));
  return FollowLeader(engine->group_, engine->model_.get(), engine->cache_.get(), go_on);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRanks(const std::string& folder,
                                                          const EngineOptions& options) {
  std::shared_ptr<Engine> engine(new Engine);
  DSV4_RETURN_IF_ERROR(engine->Configure(folder, options));
  DSV4_RETURN_IF_ERROR(engine->LoadTokenizer(folder));
  DSV4_RETURN_IF_ERROR(engine->Load(folder, options));
  return engine;
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::OpenRandom(absl::string_view config_json,
                                                           const EngineOptions& options) {
  std::shared_ptr<Engine> engine(new Engine);
  DSV4_ASSIGN_OR_RETURN(engine->config_, ParseModelConfig(config_json, "random weights"));
  engine->config_.synthetic_layers = engine->config_.num_hidden_layers;
  engine->token_limit_ = static_cast<int32_t>(engine->config_.vocab_size);
  engine->eos_tokens_ = engine->config_.eos_token_ids;
  DSV4_RETURN_IF_ERROR(engine->Settle(options));
  DSV4_RETURN_IF_ERROR(engine->Load("", options));
  return engine;
}

absl::Status Engine::Load(const std::string& folder, const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        OpenCheckpoint(folder, config_, options.synthetic));
  if (options.prove && options.backend == Backend::kCuda) {
    DSV4_RETURN_IF_ERROR(ProveOnce(DevicesOf(options), options.tuning_dir));
  }
  DSV4_RETURN_IF_ERROR(OpenDevices(options));
  DSV4_RETURN_IF_ERROR(ExpectRoom(folder, options));
  if (options.group.grouped()) {
    DSV4_RETURN_IF_ERROR(JoinGroup(checkpoint->Fingerprint(), options));
  }
  DSV4_RETURN_IF_ERROR(LoadWeights(std::move(checkpoint), options));
  DSV4_RETURN_IF_ERROR(DescribeWeights(options));
  return Build(options);
}

absl::StatusOr<EnginePlan> Engine::PlanOn(const std::string& folder, const EngineOptions& options,
                                          bool room) {
  Engine engine;
  DSV4_RETURN_IF_ERROR(engine.Configure(folder, options));
  DSV4_RETURN_IF_ERROR(engine.LoadTokenizer(folder));
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        OpenCheckpoint(folder, engine.config_, options.synthetic));
  DSV4_RETURN_IF_ERROR(engine.OpenDevices(options));
  DSV4_ASSIGN_OR_RETURN(engine.weights_, Weights::Describe(engine.config_, std::move(checkpoint),
                                                           engine.Targets(options)));
  EnginePlan plan;
  DSV4_ASSIGN_OR_RETURN(plan.cache, engine.PlanMemory(options));
  if (room) DSV4_RETURN_IF_ERROR(engine.CheckRoom());
  plan.info = engine.info_;
  plan.config = engine.config_;
  plan.weight_format = engine.weight_format_;
  return plan;
}

// Reads the configuration files, and settles the options.
absl::Status Engine::Configure(const std::string& folder, const EngineOptions& options) {
  const std::string config_path = folder + "/config.json";
  DSV4_ASSIGN_OR_RETURN(const std::string config_json, ReadFile(config_path, kMaxConfigBytes));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(config_json, config_path);
  if (!config.ok()) return FaultOfFile(config.status());
  config_ = *std::move(config);
  // Random weights must not be taken for those that are there.
  if (config_.synthetic_layers > 0 && Checkpoint::LiesIn(folder)) {
    return Corrupt(config_path, ": dsv4_synthetic_layers is for folders without weights; ", folder,
                   " has some");
  }
  if (options.synthetic_layers > config_.num_hidden_layers) {
    return InvalidArgument(options.synthetic_layers, " synthetic layers; ", config_path, " has ",
                           config_.num_hidden_layers);
  }
  if (options.synthetic_layers > 0) config_.synthetic_layers = options.synthetic_layers;
  if (config_.synthetic_layers > 0) config_ = FirstLayers(config_, config_.synthetic_layers);
  config_hash_ = HashOfText(config_json);
  const std::string generation_path = folder + "/generation_config.json";
  absl::StatusOr<std::string> generation_json = ReadFile(generation_path, kMaxConfigBytes);
  if (generation_json.ok()) {
    absl::StatusOr<GenerationConfig> generation =
        ParseGenerationConfig(*generation_json, generation_path);
    if (!generation.ok()) return FaultOfFile(generation.status());
    generation_ = *std::move(generation);
  } else if (!absl::IsNotFound(generation_json.status())) {
    return generation_json.status();
  }
  for (const std::string& key : generation_.unused_keys) {
    Log(LogLevel::kInfo, generation_path, ": ", Quoted(key), " is not followed");
  }
  eos_tokens_ = config_.eos_token_ids;
  for (const int32_t token : generation_.eos_token_ids) {
    if (token < 0 || token >= config_.vocab_size) {
      return Corrupt(generation_path, ": eos_token_id ", token, " is not in 0..",
                     config_.vocab_size - 1);
    }
    eos_tokens_.push_back(token);
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
  absl::StatusOr<Shards> shards = Shards::Of(config_, ranks);
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
  info_.backend = options.backend;
  info_.numerics = options.numerics;
  DSV4_ASSIGN_OR_RETURN(info_.cache_format, CacheFormat(options));
  DSV4_ASSIGN_OR_RETURN(info_.context_tokens,
                        OptionOr("context_tokens", options.context_tokens,
                                 config_.max_position_embeddings, config_.max_position_embeddings));
  DSV4_ASSIGN_OR_RETURN(info_.cache_tokens,
                        OptionOr<int64_t>("cache_tokens", options.cache_tokens,
                                          info_.context_tokens, int64_t{1} << 40));
  DSV4_ASSIGN_OR_RETURN(info_.max_sessions, OptionOr("max_sessions", options.max_sessions,
                                                     kDefaultSessions, kMaxSessions));
  DSV4_ASSIGN_OR_RETURN(info_.prefill_chunk_tokens,
                        OptionOr("prefill_chunk_tokens", options.prefill_chunk_tokens,
                                 kDefaultPrefillChunk, kMaxPrefillChunk));
  DSV4_ASSIGN_OR_RETURN(
      info_.max_draft_tokens,
      OptionOr<int32_t>("max_draft_tokens", options.max_draft_tokens, 0, kMaxDraftTokens));
  return absl::OkStatus();
}

// A folder without a tokenizer opens all the same; one with a broken or foreign tokenizer does not.
absl::Status Engine::LoadTokenizer(const std::string& folder) {
  token_limit_ = static_cast<int32_t>(config_.vocab_size);
  const std::string path = folder + "/tokenizer.json";
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Load(path);
  if (absl::IsNotFound(tokenizer.status())) return absl::OkStatus();
  if (!tokenizer.ok()) return tokenizer.status();
  tokenizer_ = *std::move(tokenizer);
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  tokenizer_hash_ = HashOf(file.bytes());
  if (tokenizer_->max_id() >= config_.vocab_size) {
    return Corrupt(path, ": token id ", tokenizer_->max_id(), " is beyond the model's vocab_size ",
                   config_.vocab_size);
  }
  token_limit_ = tokenizer_->vocab_size();
  for (int32_t token = 0; token < token_limit_; ++token) {
    if (!tokenizer_->HasToken(token)) token_gaps_.push_back(token);
  }
  with_text_ = MaskOfText(config_.vocab_size, token_limit_, token_gaps_);
  info_.has_tokenizer = true;
  chat_encoder_ = FindChatEncoder(folder);
  return absl::OkStatus();
}

absl::Status Engine::ReadTuning(const EngineOptions& options) {
  if (options.tuning_dir.empty()) return absl::OkStatus();
  if (options.backend != Backend::kCuda) {
    return WithArgument(
        Unsupported("option tuning_dir = ", options.tuning_dir, ": kernels of backend ",
                    BackendName(options.backend), " have nothing to tune; those of cuda have"),
        "tuning_dir");
  }
  absl::StatusOr<std::vector<TuningFile>> files =
      ReadTuningDirectory(options.tuning_dir, BuiltinManifests());
  if (!files.ok()) return WithArgument(files.status(), "tuning_dir");
  tuning_files_ = *std::move(files);
  return absl::OkStatus();
}

absl::Status Engine::CheckBudgets(const EngineOptions& options) const {
  const ExpertBudgets& budgets = options.weight_budgets;
  for (const auto& [name, bytes] : {std::pair("device_weight_bytes", budgets.device_bytes),
                                    std::pair("host_weight_bytes", budgets.host_bytes)}) {
    if (bytes < 0) {
      return WithArgument(InvalidArgument("option ", name, " = ", bytes, " is negative"), name);
    }
    if ((bytes > 0 || budgets.least) && options.backend != Backend::kCuda) {
      return WithArgument(
          Unsupported("option ", name, " = ", bytes, ": backend ", BackendName(options.backend),
                      " reads weights where the checkpoint's files are mapped"),
          name);
    }
  }
  if (budgets.host_bytes > 0 && !budgets.limited()) {
    return WithArgument(InvalidArgument("option host_weight_bytes = ", budgets.host_bytes,
                                        " without device_weight_bytes, which leaves the host none"),
                        "host_weight_bytes");
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
      return refused(InvalidArgument("option devices names ", *device, " among ", count,
                                     " parts of the CPU, which are 0..", count - 1));
    }
    if (std::find(devices.begin(), device, *device) != device) {
      return refused(InvalidArgument("option devices names ", *device, " twice"));
    }
  }
  return absl::OkStatus();
}

// What must be the same for the processes to compute the same steps.
absl::Status Engine::JoinGroup(const ContentHash& fingerprint, const EngineOptions& options) {
  const Device& device = *devices_.front();
  const std::string record = absl::StrCat(
      "group_size = ", options.group.ranks, "\nmodel config.json = ", HexOf(config_hash_),
      "\nmodel fingerprint = ", HexOf(fingerprint), "\ntokenizer.json = ", HexOf(tokenizer_hash_),
      "\nsynthetic layers = ", config_.synthetic_layers,
      "\narchitecture = ", ComputeCapabilityName(device.traits().compute_capability),
      "\ncontext_tokens = ", info_.context_tokens, "\ncache_tokens = ", info_.cache_tokens,
      "\nmax_sessions = ", info_.max_sessions,
      "\nprefill_chunk_tokens = ", info_.prefill_chunk_tokens,
      "\nnumerics = ", NumericsName(info_.numerics),
      "\ncache_format = ", RowFormatName(info_.cache_format),
      "\ndrafter = ", DrafterName(info_.drafter), "\nmax_draft_tokens = ", info_.max_draft_tokens,
      "\ndevice_weight_bytes = ", options.weight_budgets.device_bytes,
      "\nhost_weight_bytes = ", options.weight_budgets.host_bytes,
      "\ngraphs = ", options.graphs ? "on" : "off", "\nrows of logits = ", options.logit_rows,
      "\nplan = ", weights_ == nullptr ? 0 : weights_->device_bytes(), " bytes of weights");
  DSV4_ASSIGN_OR_RETURN(
      joined_,
      ProcessGroup::Join(options.group, {devices_.front().get(), dispatches_[0].get()}, record));
  return absl::OkStatus();
}

absl::Status Engine::LoadWeights(std::unique_ptr<Checkpoint> checkpoint,
                                 const EngineOptions& options) {
  absl::Status joined;
  std::function<bool(int64_t, int64_t)> progress = options.progress;
  if (joined_ != nullptr) {
    progress = [&](int64_t done, int64_t total) {
      if (options.progress && !options.progress(done, total)) return false;
      joined = joined_->Loaded(done, total);
      return joined.ok();
    };
  }
  absl::StatusOr<std::unique_ptr<Weights>> weights =
      Weights::Load(config_, std::move(checkpoint), progress, Targets(options));
  DSV4_RETURN_IF_ERROR(joined);
  DSV4_ASSIGN_OR_RETURN(weights_, std::move(weights));
  return absl::OkStatus();
}

// Ranks on the CPU share its threads, one each at least.
absl::Status Engine::OpenDevices(const EngineOptions& options) {
  const bool cuda = options.backend == Backend::kCuda;
  const int threads = options.threads == 0 ? UsableCores() : options.threads;
  const int local = options.group.grouped() ? 1 : ranks();
  for (int rank = 0; rank < local; ++rank) {
    DeviceOptions device{.kind = cuda ? DeviceKind::kCuda : DeviceKind::kCpu,
                         .threads = options.threads};
    if (!options.devices.empty() && (cuda || local == 1)) {
      device.index = options.devices[static_cast<size_t>(rank)];
    }
    DSV4_RETURN_IF_ERROR(Device::Check(device));
    if (local > 1) {
      device.threads = std::max(threads * (rank + 1) / local - threads * rank / local, 1);
    }
    DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Device> opened, Device::Open(device));
    const DeviceTraits traits = opened->traits();
    if (rank > 0 && !AlikeForRanks(devices_.front()->traits(), traits)) {
      return WithArgument(
          Unsupported("option devices: cuda:", devices_.front()->index(), " (", device_name_, ", ",
                      ComputeCapabilityName(devices_.front()->traits().compute_capability),
                      ") and cuda:", opened->index(), " (", opened->name(), ", ",
                      ComputeCapabilityName(traits.compute_capability),
                      ") are of different architectures"),
          "devices");
    }
    info_.threads += opened->threads();
    devices_.push_back(std::move(opened));
    device_name_ = devices_.front()->name();
  }
  for (const std::unique_ptr<Device>& opened : devices_) {
    const DeviceTraits traits = opened->traits();
    DSV4_ASSIGN_OR_RETURN(
        std::vector<TuningTable> tables,
        TablesOf(traits, tuning_files_, BuiltinTuningFiles(), BuiltinManifests()));
    if (options.config_number >= 0) tables = TablesOfConfig(options.config_number);
    if (cuda) {
      Log(LogLevel::kInfo, "tuning tables of ", tables.size(), " kernels for ", opened->name(),
          ", ", ComputeCapabilityName(traits.compute_capability), " with ", traits.multiprocessors,
          " multiprocessors");
    }
    dispatches_.push_back(std::make_unique<Dispatch>(BuiltinManifests(), options.backend,
                                                     options.numerics, traits, std::move(tables)));
  }
  tuning_files_.clear();
  return absl::OkStatus();
}

WeightTargets Engine::Targets(const EngineOptions& options) const {
  WeightTargets targets{.shards = shards_, .ranks = {}, .budgets = options.weight_budgets};
  for (int rank = 0; rank < ranks(); ++rank) {
    const size_t device = DeviceOf(rank);
    targets.ranks.push_back({devices_[device].get(), dispatches_[device].get(), IsHere(rank)});
  }
  return targets;
}

absl::Status Engine::DescribeWeights(const EngineOptions& options) {
  info_.weight_bytes = weights_->device_bytes() > 0
                           ? weights_->device_bytes()
                           : weights_->mapped_bytes() + weights_->owned_bytes();
  weight_format_ = weights_->weight_format();
  if (!config_.expert_dtype.empty() && !weights_->ExpertsAre(config_.expert_dtype)) {
    Log(LogLevel::kWarning, "config.json: expert_dtype is ", Quoted(config_.expert_dtype),
        ", but the weights are ", weight_format_, ": the tensors are believed");
  }
  info_.residency = weights_->residency();
  if (options.group.grouped() && info_.residency.on_disk > 0) {
    return WithArgument(
        Unsupported("option host_weight_bytes = ", options.weight_budgets.host_bytes, " leaves ",
                    info_.residency.on_disk,
                    " experts on disk; ranks in several processes have all of "
                    "theirs in memory, which takes ",
                    info_.residency.all() - info_.residency.on_device, " of ",
                    info_.residency.expert_bytes, " bytes"),
        "host_weight_bytes");
  }
  info_.token_expert_bytes =
      config_.num_hidden_layers * config_.num_experts_per_tok * info_.residency.expert_bytes;
  DSV4_RETURN_IF_ERROR(ChooseDrafter(options));
  ShareOut();
  return absl::OkStatus();
}

absl::Status Engine::ChooseDrafter(const EngineOptions& options) {
  const DrafterKind own =
      weights_->drafter == nullptr ? DrafterKind::kNone : weights_->drafter->kind;
  info_.checkpoint_drafter = own;
  info_.drafter = DrafterKind::kNone;
  if (!options.drafts && options.max_draft_tokens == 0) return absl::OkStatus();
  info_.drafter = options.drafter.value_or(own);
  if (options.drafter == DrafterKind::kNone) {
    return WithArgument(
        InvalidArgument("option drafter = none with max_draft_tokens = ", options.max_draft_tokens),
        "drafter");
  }
  if (info_.drafter == DrafterKind::kNone) {
    return WithArgument(
        NotFound("the checkpoint has no drafter (mtp.0.*), which max_draft_tokens = ",
                 options.max_draft_tokens, " asks for; drafter = n-gram needs none"),
        "drafter");
  }
  if (PlansDrafter() && info_.drafter != own) {
    return WithArgument(NotFound("option drafter = ", DrafterName(info_.drafter),
                                 ": the checkpoint's drafter is ", DrafterName(own)),
                        "drafter");
  }
  info_.max_draft_tokens = MostDrafts(info_.drafter, config_, info_.max_draft_tokens);
  return absl::OkStatus();
}

void Engine::ShareOut() {
  info_.devices.resize(static_cast<size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = info_.devices[static_cast<size_t>(rank)];
    device.weights = weights_->bytes(rank);
    if (!IsHere(rank)) continue;
    // The parts of the CPU are one device's.
    device.index = devices_.size() > 1 && devices_.front()->host_memory()
                       ? rank
                       : devices_[DeviceOf(rank)]->index();
  }
  const Dispatch& dispatch = *dispatches_.front();
  info_.exchange = ExchangeOf(config_, ranks(), DTypeBytes(dispatch.activation_dtype()),
                              dispatch.quantized_rows());
}

const DeviceBytes& EngineInfo::fullest() const {
  return *std::max_element(
      devices.begin(), devices.end(),
      [](const DeviceBytes& a, const DeviceBytes& b) { return a.total() < b.total(); });
}

KvCacheShape Engine::CacheShape() const {
  KvCacheShape shape{.compress_ratios = config_.compress_ratios,
                     .row_format = info_.cache_format,
                     .context_tokens = info_.context_tokens,
                     .cache_tokens = info_.cache_tokens,
                     .max_sequences = info_.max_sessions,
                     .max_step_tokens = info_.prefill_chunk_tokens,
                     .max_draft_tokens = info_.max_draft_tokens};
  const size_t draft_layers = PlansDrafter() ? weights_->drafter->blocks.size() : 0;
  shape.compress_ratios.resize(static_cast<size_t>(config_.num_hidden_layers) + draft_layers);
  shape.max_draft_slots = DraftSlots(info_.max_draft_tokens);
  if (info_.drafter == DrafterKind::kMtp) {
    shape.mtp_layers = 1;
    shape.streams_bytes =
        kStreams * config_.hidden_size * DTypeBytes(dispatches_.front()->activation_dtype());
  }
  return shape;
}

// A step takes one prefill chunk beside a decode row of every session and its drafts; a pass of an
// MTP block may have a row more for each.
StepLimits Engine::Limits(const EngineOptions& options) const {
  const int32_t decode_rows = info_.max_sessions * (1 + info_.max_draft_tokens);
  // So may one of blocks.
  const int32_t block_rows = info_.max_sessions * DraftSlots(info_.max_draft_tokens);
  const int32_t mtp_rows =
      PlansDrafter() ? std::max(info_.max_sessions, block_rows - decode_rows) : 0;
  return {.rows = info_.prefill_chunk_tokens + decode_rows + mtp_rows,
          .sequences = info_.max_sessions,
          .logit_rows = std::max(options.logit_rows, decode_rows),
          .positions = info_.context_tokens,
          .drafts = PlansDrafter() ? info_.max_draft_tokens : 0,
          .decode_rows = decode_rows + mtp_rows};
}

Model::Parts Engine::ModelParts(const EngineOptions& options, int rank,
                                absl::Span<const LayerCache> layers) const {
  return {.config = &config_,
          .weights = &weights_->views(rank),
          .mover = weights_->mover(rank),
          .fetches = weights_->residency().on_disk > 0,
          .fetcher = weights_->fetcher(rank),
          .dispatch = dispatches_[DeviceOf(rank)].get(),
          .device = devices_[DeviceOf(rank)].get(),
          .layers = layers,
          .drafts = PlansDrafter(),
          .omitted_points = options.omitted_points,
          .graphs = options.graphs,
          .with_text = with_text_,
          .shards = &shards_,
          .rank = rank};
}

absl::StatusOr<KvPlan> Engine::PlanMemory(const EngineOptions& options) {
  DSV4_RETURN_IF_ERROR(DescribeWeights(options));
  DSV4_ASSIGN_OR_RETURN(KvPlan cache, PlanKvCache(CacheShape()));
  info_.cache_bytes = info_.workspace_bytes = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = info_.devices[static_cast<size_t>(rank)];
    DSV4_ASSIGN_OR_RETURN(
        device.workspace,
        Model::PlanBytes(ModelParts(options, rank, cache.layers), Limits(options)));
    device.workspace += ExchangeBytes();
    device.cache = cache.bytes.total();
    info_.cache_bytes += device.cache;
    info_.workspace_bytes += device.workspace;
  }
  return cache;
}

// Reading the weights of a plan that does not fit would take minutes.
absl::Status Engine::ExpectRoom(const std::string& folder, const EngineOptions& options) {
  if (!devices_.front()->FreeBytes() && !options.weight_budgets.limited()) return absl::OkStatus();
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint,
                        OpenCheckpoint(folder, config_, options.synthetic));
  DSV4_ASSIGN_OR_RETURN(weights_,
                        Weights::Describe(config_, std::move(checkpoint), Targets(options)));
  DSV4_RETURN_IF_ERROR(PlanMemory(options).status());
  const auto here = static_cast<int64_t>(devices_.size());
  DSV4_RETURN_IF_ERROR(ExpectHostRoom(info_.residency, here, ranks(), AvailableMemory()));
  return CheckRoom();
}

absl::Status Engine::CheckRoom() const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const std::optional<int64_t> free = devices_[i]->FreeBytes();
    const DeviceBytes& plan = info_.devices[static_cast<size_t>(first_rank_) + i];
    if (!free || plan.total() <= *free) continue;
    return OutOfDeviceMemory("cuda:", devices_[i]->index(), " (", devices_[i]->name(), ") has ",
                             *free, " bytes free; the plan takes ", plan.total(),
                             " of it: weights ", plan.weights, ", key/value cache ", plan.cache,
                             ", workspace ", plan.workspace);
  }
  return absl::OkStatus();
}

// Cache and activations: what takes memory besides the weights.
absl::Status Engine::Build(const EngineOptions& options) {
  std::vector<Device*> devices;
  for (const std::unique_ptr<Device>& device : devices_) devices.push_back(device.get());
  DSV4_ASSIGN_OR_RETURN(cache_, KvCache::Create(CacheShape(), devices));
  const StepLimits limits = Limits(options);
  std::vector<Model::Parts> parts;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    parts.push_back(ModelParts(options, first_rank_ + i, cache_->layers(i)));
    parts.back().streams = cache_->streams(i);
  }
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::shared_ptr<const ExchangeWays> ways;  // between devices with memory of their own
  if (joined_ != nullptr) {
    group_ = joined_.get();
    communicators.push_back(std::move(joined_));
  } else if (ranks() > 1 && devices_.front()->host_memory()) {
    communicators = MemoryCommunicators(ranks(), kExchangeLimit);
  } else if (ranks() > 1) {
    std::vector<DeviceRank> connected;
    for (int rank = 0; rank < ranks(); ++rank) {
      connected.push_back(
          {devices[static_cast<size_t>(rank)], dispatches_[static_cast<size_t>(rank)].get()});
    }
    absl::StatusOr<DeviceCommunicators> all = ConnectDevices(connected, options.exchange);
    if (!all.ok()) return WithArgument(all.status(), "devices");
    communicators = std::move(all->ranks);
    ways = std::move(all->ways);
  }
  DSV4_ASSIGN_OR_RETURN(model_,
                        ModelRanks::Create(std::move(parts), limits, std::move(communicators)));
  if (ways != nullptr || group_ != nullptr) {
    Log(LogLevel::kInfo, ranks(), " devices exchange ", info_.exchange.bytes, " bytes a token in ",
        info_.exchange.exchanges, " exchanges, ",
        ways != nullptr ? ways->Describe() : "by NCCL between processes");
  }
  batch_ = std::make_unique<StepBatch>(limits);
  runner_ = std::make_unique<StepRunner>(
      model_.get(), Drafter::Of(info_.drafter, config_, model_.get()), config_.vocab_size);
  scheduler_ =
      std::make_unique<Scheduler>(runner_.get(), info_.prefill_chunk_tokens, info_.max_sessions);
  info_.cache_bytes = info_.workspace_bytes = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = info_.devices[static_cast<size_t>(rank)];
    device.cache = cache_->bytes().total();
    if (IsHere(rank)) {
      device.workspace = model_->workspace_bytes(rank - first_rank_);
    } else {
      DSV4_ASSIGN_OR_RETURN(
          device.workspace,
          Model::PlanBytes(ModelParts(options, rank, cache_->plan().layers), limits));
    }
    device.workspace += ExchangeBytes();
    info_.cache_bytes += device.cache;
    info_.workspace_bytes += device.workspace;
  }
  Log(LogLevel::kInfo, "opened on backend ", BackendName(info_.backend), ", ", info_.threads,
      " threads: weights ", info_.weight_bytes, " bytes, cache ", info_.cache_bytes, " bytes (",
      RowFormatName(info_.cache_format), " rows), workspace ", info_.workspace_bytes, " bytes");
  if (info_.residency.on_device < info_.residency.all()) {
    Log(LogLevel::kInfo, info_.residency.on_host, " of ", info_.residency.all(),
        " routed experts in host memory, ", info_.residency.on_disk, " on disk; they take ",
        info_.residency.host_bytes(), " bytes of host memory");
  }
  if (group_ == nullptr) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(group_->Opened());
  if (group_->rank() > 0) return absl::OkStatus();
  model_->Lead(group_);
  writes_ = std::make_unique<TellWrites>(group_);
  cache_->set_writes(writes_.get());
  return absl::OkStatus();
}

const SessionIdentity& Engine::identity() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return identity_;
}

const std::string& Engine::fingerprint() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return fingerprint_;
}

void Engine::ComputeIdentity() const {
  const ContentHash tensors = weights_->checkpoint().Fingerprint();
  fingerprint_ = HexOf(tensors);
  const KvCacheShape& shape = cache_->shape();
  identity_ = {.weights = HashOfText(absl::StrCat(config_hash_.high, " ", config_hash_.low, " ",
                                                  tensors.high, " ", tensors.low)),
               .tokenizer = tokenizer_hash_,
               // What the model's configuration leaves open of the bytes of rows and states.
               .cache = HashOfText(absl::StrCat(
                   NumericsName(info_.numerics), " ", RowFormatName(shape.row_format), " ",
                   shape.mtp_layers, " ", shape.streams_bytes, " ", shape.compress_ratios.size()))};
}

ExpertTraffic Engine::expert_traffic() const {
  const ExpertMover* const mover = weights_->mover(0);
  const ExpertFetcher* const fetcher = weights_->fetcher(0);
  const ExpertTraffic moved = mover == nullptr ? ExpertTraffic() : mover->traffic();
  if (fetcher == nullptr) return moved;
  ExpertTraffic traffic = fetcher->traffic();
  traffic.moved = moved.moved;
  return traffic;
}

absl::StatusOr<const Tokenizer*> Engine::tokenizer() const {
  if (tokenizer_ == nullptr) return NotFound("the model folder has no tokenizer.json");
  return tokenizer_.get();
}

absl::StatusOr<std::shared_ptr<const grammar::Vocabulary>> Engine::grammar_tokens() const {
  DSV4_ASSIGN_OR_RETURN(const Tokenizer* tokens, tokenizer());
  std::call_once(grammar_tokens_once_,
                 [&] { grammar_tokens_ = GrammarTokens(*tokens, config_.vocab_size); });
  return grammar_tokens_;
}

}  // namespace dsv4
