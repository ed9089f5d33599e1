// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/builtin.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/memory_communicator.h"

namespace dsv4 {
namespace {

// Of a wait for another rank, which may first have to finish a long prefill on a slow machine.
// Failures are noticed at once; the limit ends waits whose cause goes unnoticed.
constexpr std::chrono::minutes kExchangeLimit{10};

// The same where the ranks are devices that read experts from disk.
constexpr std::chrono::seconds kReadingDeviceLimit{60};

// Kernels of one image, so that ranks differ in nothing that they compute with.
bool AlikeForRanks(const DeviceTraits& a, const DeviceTraits& b) {
  return a.compute_capability == b.compute_capability && a.features == b.features;
}

std::vector<Device*> Pointers(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Device*> pointers;
  for (const std::unique_ptr<Device>& device : devices) pointers.push_back(device.get());
  return pointers;
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

}  // namespace

Engine::~Engine() {
  if (profile_keeper_ == nullptr) return;
  profile_keeper_.reset();
  WriteProfile();
}

void Engine::WriteProfile() {
  const absl::Status status = Contained([this]() -> absl::Status {
    MutexLock lock(&profile_mutex_);
    ExpertProfile profile;
    {
      MutexLock weights_lock(&weights_mutex_);
      profile = counted_weights_ == nullptr ? past_profile_ : counted_weights_->use()->Total();
    }
    if (profile == written_profile_) return absl::OkStatus();
    DSV4_RETURN_IF_ERROR(WriteExpertProfile(profile_path_, profile_checkpoint_, profile));
    written_profile_ = std::move(profile);
    return absl::OkStatus();
  });
  if (!status.ok()) Log(LogLevel::kWarning, "expert profile: ", status.message());
}

absl::Status Engine::ReadTuning(const EngineOptions& options) {
  if (options.tuning_dir.empty()) return absl::OkStatus();
  if (options.backend != Backend::kCuda) {
    return WithArgument(
        Unsupported("option tuning_dir = ", options.tuning_dir, ": backend ",
                    BackendName(options.backend), " has no tuning tables; only backend cuda has"),
        "tuning_dir");
  }
  absl::StatusOr<std::vector<TuningFile>> files =
      ReadTuningDirectory(options.tuning_dir, BuiltinManifests());
  if (!files.ok()) return WithArgument(files.status(), "tuning_dir");
  tuning_files_ = *std::move(files);
  return absl::OkStatus();
}

// What must be the same for the processes to compute the same steps.
absl::Status Engine::JoinGroup(const ContentHash& fingerprint, const EngineOptions& options) {
  const Device& device = *devices_.front();
  const ResidencyPlan& plan = weights_->residency();
  const std::string record = absl::StrCat(
      "group_size = ", options.group.ranks, "\nmodel config.json = ", HexOf(config_hash_),
      "\nmodel fingerprint = ", HexOf(fingerprint), "\ntokenizer.json = ", HexOf(tokenizer_hash_),
      "\nsynthetic layers = ", facts_.config.synthetic_layers,
      "\narchitecture = ", ComputeCapabilityName(device.traits().compute_capability),
      "\ncontext_tokens = ", facts_.info.context_tokens,
      "\ncache_tokens = ", facts_.info.cache_tokens, "\nmax_sessions = ", facts_.info.max_sessions,
      "\nprefill_chunk_tokens = ", facts_.info.prefill_chunk_tokens,
      "\nnumerics = ", NumericsName(facts_.info.numerics),
      "\ncache_format = ", RowFormatName(facts_.info.cache_format),
      "\ndrafter = ", DrafterName(facts_.info.drafter),
      "\nmax_draft_tokens = ", facts_.info.max_draft_tokens,
      "\ndevice_weight_bytes = ", options.weight_budgets.device_bytes,
      "\nhost_weight_bytes = ", options.weight_budgets.host_bytes,
      "\ngraphs = ", options.graphs ? "on" : "off", "\nrows of logits = ", options.logit_rows,
      "\nplan = ", weights_->device_bytes(), " bytes of weights, ", plan.on_device,
      " experts on the device, ", plan.on_host, " on the host and ", plan.on_disk, " on disk");
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
      Weights::Load(facts_.config, std::move(checkpoint), progress, Targets(options));
  DSV4_RETURN_IF_ERROR(joined);
  DSV4_RETURN_IF_ERROR(weights.status());
  weights_ = *std::move(weights);
  MutexLock lock(&weights_mutex_);
  counted_weights_ = weights_.get();
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
    facts_.info.threads += opened->threads();
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
  return options.weight_budgets.cpu_experts > 0 ? OpenCpu(options) : absl::OkStatus();
}

absl::Status Engine::OpenCpu(const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(cpu_, Device::Open({.threads = options.threads}));
  cpu_dispatch_ = std::make_unique<Dispatch>(BuiltinManifests(), Backend::kCpu, options.numerics,
                                             cpu_->traits());
  facts_.info.threads = cpu_->threads();
  return absl::OkStatus();
}

absl::Status Engine::BuildModel(const EngineOptions& options) {
  const std::vector<Device*> devices = Pointers(devices_);
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
    absl::StatusOr<DeviceCommunicators> all =
        ConnectDevices(connected, options.exchange,
                       facts_.info.residency.on_disk > 0 ? kReadingDeviceLimit : kDeviceLimit);
    if (!all.ok()) return WithArgument(all.status(), "devices");
    communicators = std::move(all->ranks);
    ways = std::move(all->ways);
  }
  DSV4_ASSIGN_OR_RETURN(model_,
                        ModelRanks::Create(std::move(parts), limits, std::move(communicators)));
  if (ways != nullptr || group_ != nullptr) {
    Log(LogLevel::kInfo, ranks(), " devices exchange ", facts_.info.exchange.bytes,
        " bytes a token in ", facts_.info.exchange.exchanges, " exchanges, ",
        ways != nullptr ? ways->Describe() : "by NCCL between processes");
  }
  batch_ = std::make_unique<StepBatch>(limits);
  runner_ = std::make_unique<StepRunner>(
      model_.get(), Drafter::Of(facts_.info.drafter, facts_.config, model_.get()),
      facts_.config.vocab_size);
  return absl::OkStatus();
}

// Cache and activations: what takes memory besides the weights.
absl::Status Engine::Build(const EngineOptions& options) {
  DSV4_ASSIGN_OR_RETURN(cache_, KvCache::Create(CacheShape(), Pointers(devices_)));
  DSV4_RETURN_IF_ERROR(BuildModel(options));
  scheduler_ = std::make_unique<Scheduler>(runner_.get(), facts_.info.prefill_chunk_tokens,
                                           facts_.info.max_sessions);
  facts_.info.cache_bytes = facts_.info.workspace_bytes = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = facts_.info.devices[static_cast<size_t>(rank)];
    device.cache = cache_->bytes().total();
    if (IsHere(rank)) {
      device.workspace = model_->workspace_bytes(rank - first_rank_);
    } else {
      DSV4_ASSIGN_OR_RETURN(
          device.workspace,
          Model::PlanBytes(ModelParts(options, rank, cache_->plan().layers), Limits(options)));
    }
    device.workspace += ExchangeBytes();
    facts_.info.cache_bytes += device.cache;
    facts_.info.workspace_bytes += device.workspace;
  }
  Log(LogLevel::kInfo, "opened on backend ", BackendName(facts_.info.backend), ", ",
      facts_.info.threads, " threads: weights ", facts_.info.weight_bytes, " bytes, cache ",
      facts_.info.cache_bytes, " bytes (", RowFormatName(facts_.info.cache_format),
      " rows), workspace ", facts_.info.workspace_bytes, " bytes");
  if (const ExpertPages* const pages = weights_->pages(); pages != nullptr) {
    Log(options.weight_budgets.host_bytes > 0 ? LogLevel::kInfo : LogLevel::kWarning,
        facts_.info.residency.on_host, " of ", facts_.info.residency.all(),
        " routed experts stay in memory, ", pages->locked_bytes(), " of ",
        facts_.info.residency.host_bytes(),
        " bytes of them locked; the others are read from disk when a step needs them");
  } else if (facts_.info.residency.on_device < facts_.info.residency.placed()) {
    Log(LogLevel::kInfo, facts_.info.residency.on_host, " of ", facts_.info.residency.all(),
        " routed experts in host memory, ", facts_.info.residency.on_disk, " on disk; they take ",
        facts_.info.residency.host_bytes(), " bytes of host memory");
  }
  if (const ResidencyPlan& plan = facts_.info.residency; plan.cpu_experts > 0) {
    Log(LogLevel::kInfo, "the CPU computes experts ", plan.experts - plan.cpu_experts, " to ",
        plan.experts - 1, " of each layer, with ", cpu_->threads(), " threads: ", plan.cpu_bytes,
        " bytes of host memory");
  }
  if (!profile_path_.empty()) {
    DSV4_ASSIGN_OR_RETURN(profile_keeper_, ProfileKeeper::Start(options.profile_interval,
                                                                [this] { WriteProfile(); }));
  }
  if (group_ == nullptr) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(group_->Opened(facts_.info.residency.on_disk > 0));
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

absl::Span<const OtherCache> Engine::other_caches() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return other_caches_;
}

const std::string& Engine::fingerprint() const {
  std::call_once(identity_once_, [this] { ComputeIdentity(); });
  return fingerprint_;
}

void Engine::ComputeIdentity() const {
  const ContentHash tensors = weights_->checkpoint().Fingerprint();
  fingerprint_ = HexOf(tensors);
  const KvCacheShape& shape = cache_->shape();
  const int64_t cpu_experts = facts_.info.residency.cpu_experts;
  // What the model's configuration leaves open of the bytes of rows and states.
  const auto cache_of = [&](RowFormat format, int64_t share) {
    return HashOf(absl::StrCat(NumericsName(facts_.info.numerics), " ", RowFormatName(format), " ",
                               shape.mtp_layers, " ", shape.streams_bytes, " ",
                               shape.compress_ratios.size(),
                               share == 0 ? "" : absl::StrCat(" ", share, " experts on the CPU")));
  };
  for (const RowFormat format :
       {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kF32, RowFormat::kFp8PerTensor}) {
    if (format == shape.row_format) continue;
    other_caches_.push_back({absl::StrCat("rows in cache format ", RowFormatName(format),
                                          ", which is not the engine's"),
                             cache_of(format, cpu_experts)});
  }
  for (int64_t share = 0; share < config().n_routed_experts; ++share) {
    if (share == cpu_experts) continue;
    other_caches_.push_back(
        {absl::StrCat("cpu_experts = ", share, "; the engine has cpu_experts = ", cpu_experts),
         cache_of(shape.row_format, share)});
  }
  identity_ = {.weights = HashOf(absl::StrCat(config_hash_.high, " ", config_hash_.low, " ",
                                              tensors.high, " ", tensors.low)),
               .tokenizer = tokenizer_hash_,
               .cache = cache_of(shape.row_format, cpu_experts)};
}

ExpertTraffic Engine::expert_traffic() const {
  MutexLock lock(&weights_mutex_);
  if (counted_weights_ == nullptr) return past_traffic_;
  const ExpertMover* const mover = counted_weights_->mover(0);
  const ExpertFetcher* const fetcher = counted_weights_->fetcher(0);
  if (counted_weights_->pages() != nullptr)
    return counted_weights_->pages()->traffic() + past_traffic_;
  ExpertTraffic moved = mover == nullptr ? ExpertTraffic() : mover->traffic();
  if (const ExpertStreamer* const streamer = counted_weights_->streamer(0); streamer != nullptr) {
    moved.streamed_bytes = streamer->bytes();
    moved.stream_seconds = streamer->seconds();
  }
  ExpertTraffic traffic = fetcher == nullptr ? moved : fetcher->traffic();
  traffic.moved = moved.moved;
  traffic.streamed_bytes = moved.streamed_bytes;
  traffic.stream_seconds = moved.stream_seconds;
  if (const CpuShare* const share = counted_weights_->share(0); share != nullptr) {
    traffic = traffic + share->traffic();
  }
  const ExpertReadTimes& times = counted_weights_->read_times();
  traffic.device_seconds = static_cast<double>(traffic.device_reads) * times.device;
  traffic.host_seconds = static_cast<double>(traffic.host_reads) * times.host;
  return traffic + past_traffic_;
}

}  // namespace dsv4
