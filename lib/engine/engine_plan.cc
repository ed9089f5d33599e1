// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/engine/expectation.h"
#include "lib/io/page_advice.h"
#include "lib/io/system_memory.h"
#include "lib/sampling/params.h"

namespace dsv4 {
namespace {

// Drafts of a session and step by default. An MTP block is trained for one token; of a DSpark block
// the drafter chooses how many pay.
int32_t UsualDrafts(DrafterKind drafter) {
  switch (drafter) {
    case DrafterKind::kNone:
      return 0;
    case DrafterKind::kMtp:
      return 1;
    case DrafterKind::kDspark:
      return kMaxDraftTokens;  // a block
    case DrafterKind::kNgram:
      return 3;
  }
  return 0;
}

}  // namespace

absl::StatusOr<EnginePlan> EnginePlan::Make(EngineSettings settings) {
  EnginePlan plan(std::move(settings));
  DSV4_RETURN_IF_ERROR(plan.Plan());
  return plan;
}

absl::Status EnginePlan::Plan() {
  // Before devices are opened: a folder without weights is the likelier mistake.
  DSV4_RETURN_IF_ERROR(ReopenCheckpoint());
  DSV4_RETURN_IF_ERROR(ReopenDevices());
  GiveBackPageCache();
  mutable_info().threads = devices_->threads();
  DSV4_RETURN_IF_ERROR(ReadProfile());
  return Fit();
}

absl::Status EnginePlan::PlanBytes() {
  // A plan that failed has closed it.
  if (checkpoint_ == nullptr) DSV4_RETURN_IF_ERROR(ReopenCheckpoint());
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights,
                        Weights::Describe(config(), std::move(checkpoint_),
                                          Targets(profile_ ? &*profile_ : nullptr)));
  DSV4_RETURN_IF_ERROR(DescribeWeights(*weights));
  DSV4_RETURN_IF_ERROR(PlanMemory(*weights));
  checkpoint_ = weights->TakeCheckpoint();
  return absl::OkStatus();
}

// What a download left there: an integrated GPU's driver finds no memory that the page cache holds,
// although the system counts it as available.
void EnginePlan::GiveBackPageCache() const {
  if (!devices_->front().integrated()) return;
  for (const std::string& path : checkpoint_->paths()) DropCached(path, 0, 0);
}

absl::Status EnginePlan::ReopenDevices() {
  devices_.reset();
  DSV4_ASSIGN_OR_RETURN(devices_, EngineDevices::Open(settings_));
  return absl::OkStatus();
}

absl::Status EnginePlan::ReopenCheckpoint() {
  DSV4_ASSIGN_OR_RETURN(checkpoint_, settings_.OpenCheckpoint());
  return absl::OkStatus();
}

absl::Status EnginePlan::ReadProfile() {
  const EngineOptions& options = settings_.options;
  if (options.expert_profile.empty()) return absl::OkStatus();
  if (options.group.rank > 0) {
    return WithArgument(InvalidArgument("option expert_profile = ", options.expert_profile,
                                        ": only rank 0 of a group has this option"),
                        "expert_profile");
  }
  profile_checkpoint_ = checkpoint_->Fingerprint();
  absl::StatusOr<ExpertProfile> profile =
      ReadExpertProfile(options.expert_profile, profile_checkpoint_);
  if (absl::IsNotFound(profile.status())) return absl::OkStatus();  // it will be written
  if (!profile.ok()) return WithArgument(profile.status(), "expert_profile");
  profile_ = *std::move(profile);
  return absl::OkStatus();
}

absl::Status EnginePlan::UseKeptProfile() {
  EngineOptions& options = settings_.options;
  if (options.expert_profiles.empty() || !options.expert_profile.empty() || !chooses_places_ ||
      options.group.rank > 0) {
    return absl::OkStatus();
  }
  profile_checkpoint_ = checkpoint_->Fingerprint();
  const std::string path =
      absl::StrCat(options.expert_profiles, "/", HexOf(profile_checkpoint_), ".profile");
  absl::StatusOr<ExpertProfile> profile = ReadExpertProfile(path, profile_checkpoint_);
  options.expert_profile = path;
  if (!profile.ok()) {
    if (!absl::IsNotFound(profile.status())) {
      Log(LogLevel::kWarning, profile.status().message(), "; it will be replaced");
    }
    return absl::OkStatus();
  }
  profile_ = *std::move(profile);
  absl::Status planned = PlanBytes();
  if (planned.ok()) return planned;
  Log(LogLevel::kWarning, "option expert_profiles: ", planned.message());
  profile_.reset();
  return PlanBytes();
}

WeightTargets EnginePlan::Targets(const ExpertProfile* profile) const {
  WeightTargets targets{.shards = settings_.shards,
                        .ranks = {},
                        .budgets = settings_.options.weight_budgets,
                        .available = AvailableMemory(settings_.options.system_root),
                        .profile = profile};
  for (int rank = 0; rank < settings_.ranks(); ++rank) {
    targets.ranks.push_back(
        {&devices_->device(rank), &devices_->dispatch(rank), devices_->IsHere(rank)});
  }
  return targets;
}

void EnginePlan::TakeSizes(const Weights& weights) {
  EngineInfo& info = mutable_info();
  info.weight_bytes = weights.device_bytes() > 0 ? weights.device_bytes()
                                                 : weights.mapped_bytes() + weights.owned_bytes();
  weight_format_ = weights.weight_format();
  info.residency = weights.residency();
  info.mapped_expert_bytes = weights.mapped_expert_bytes();
  info.token_expert_bytes = 0;
  for (int64_t layer = 0; layer < config().num_hidden_layers; ++layer) {
    info.token_expert_bytes += config().num_experts_per_tok * info.residency.ExpertBytes(layer);
  }
  info.devices.resize(static_cast<size_t>(settings_.ranks()));
  for (int rank = 0; rank < settings_.ranks(); ++rank) {
    info.devices[static_cast<size_t>(rank)].weights = weights.bytes(rank);
  }
}

void EnginePlan::TakeSizes(const Weights& weights, const ModelRanks& model) {
  TakeSizes(weights);
  EngineInfo& info = mutable_info();
  info.workspace_bytes = 0;
  for (int rank = 0; rank < settings_.ranks(); ++rank) {
    int64_t& workspace = info.devices[static_cast<size_t>(rank)].workspace;
    if (devices_->IsHere(rank)) {
      workspace = model.workspace_bytes(rank - settings_.first_rank()) + exchange_bytes();
    }
    info.workspace_bytes += workspace;
  }
}

absl::Status EnginePlan::DescribeWeights(const Weights& weights) {
  TakeSizes(weights);
  EngineInfo& info = mutable_info();
  const ModelConfig& model = config();
  if (!model.expert_dtype.empty() && !weights.ExpertsAre(model.expert_dtype)) {
    Log(LogLevel::kWarning, "config.json: expert_dtype is ", Quoted(model.expert_dtype),
        ", but the weights are ", weight_format_, ": the tensors are believed");
  }
  chooses_places_ = weights.use() != nullptr;
  const std::string& path = settings_.options.expert_profile;
  if (!path.empty() && weights.use() == nullptr) {
    return WithArgument(
        InvalidArgument("option expert_profile = ", path,
                        ": all experts are in one memory, so that there are no places to choose"),
        "expert_profile");
  }
  if (settled_) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(ChooseDrafter(weights));
  for (int rank = 0; rank < settings_.ranks(); ++rank) {
    if (!devices_->IsHere(rank)) continue;
    // The parts of the CPU are one device's.
    info.devices[static_cast<size_t>(rank)].index =
        devices_->size() > 1 && devices_->front().host_memory() ? rank
                                                                : devices_->device(rank).index();
  }
  const Dispatch& dispatch = devices_->front_dispatch();
  info.exchange = ExchangeOf(model, settings_.ranks(), DTypeBytes(dispatch.rows().activations),
                             dispatch.rows().quantized());
  return absl::OkStatus();
}

absl::Status EnginePlan::ChooseDrafter(const Weights& weights) {
  const EngineOptions& options = settings_.options;
  EngineInfo& info = mutable_info();
  const DrafterKind own = weights.drafter == nullptr ? DrafterKind::kNone : weights.drafter->kind;
  info.checkpoint_drafter = own;
  info.drafter = DrafterKind::kNone;
  if (!options.drafts && options.max_draft_tokens == 0) return absl::OkStatus();
  const bool by_default = !options.max_draft_tokens && !options.drafts;
  info.drafter = options.drafter.value_or(own);
  if (by_default && info.drafter == DrafterKind::kNone) return absl::OkStatus();
  if (options.drafter == DrafterKind::kNone) {
    return WithArgument(InvalidArgument("option drafter = none with max_draft_tokens = ",
                                        options.max_draft_tokens.value_or(0), "; expected 0"),
                        "drafter");
  }
  if (by_default) info.max_draft_tokens = UsualDrafts(info.drafter);
  if (info.drafter == DrafterKind::kNone) {
    return WithArgument(
        NotFound("the checkpoint has no drafter (mtp.0.*), which max_draft_tokens = ",
                 options.max_draft_tokens.value_or(0), " asks for; drafter = n-gram needs none"),
        "drafter");
  }
  if (plans_drafter() && info.drafter != own) {
    return WithArgument(NotFound("option drafter = ", DrafterName(info.drafter),
                                 ": the checkpoint's drafter is ", DrafterName(own)),
                        "drafter");
  }
  info.max_draft_tokens = facts().MostDrafts(info.max_draft_tokens);
  return absl::OkStatus();
}

KvCacheShape EnginePlan::CacheShape(const Weights& weights) const {
  KvCacheShape shape{.compress_ratios = config().compress_ratios,
                     .row_format = info().cache_format,
                     .key_format = facts().key_format,
                     .context_tokens = info().context_tokens,
                     .cache_tokens = info().cache_tokens,
                     .max_sequences = info().max_sessions,
                     .max_step_tokens = info().prefill_chunk_tokens,
                     .max_draft_tokens = info().max_draft_tokens};
  const size_t draft_layers = plans_drafter() ? weights.drafter->blocks.size() : 0;
  shape.compress_ratios.resize(static_cast<size_t>(config().num_hidden_layers) + draft_layers);
  shape.max_draft_slots = facts().DraftSlots(info().max_draft_tokens);
  if (info().drafter == DrafterKind::kMtp) {
    shape.mtp_layers = 1;
    shape.streams_bytes =
        kStreams * config().hidden_size * DTypeBytes(devices_->front_dispatch().rows().activations);
  }
  return shape;
}

// A step has at most one prefill chunk, and a decode row of every session with its drafts; a pass
// of an MTP block may have a row more for each.
StepLimits EnginePlan::Limits() const {
  const int32_t decode_rows = info().max_sessions * (1 + info().max_draft_tokens);
  // So may one of blocks.
  const int32_t block_rows = info().max_sessions * facts().DraftSlots(info().max_draft_tokens);
  const int32_t mtp_rows =
      plans_drafter() ? std::max(info().max_sessions, block_rows - decode_rows) : 0;
  return {.rows = info().prefill_chunk_tokens + decode_rows + mtp_rows,
          .sequences = info().max_sessions,
          .logit_rows = std::max(settings_.options.logit_rows, decode_rows),
          .positions = info().context_tokens,
          .drafts = plans_drafter() ? info().max_draft_tokens : 0,
          .decode_rows = decode_rows + mtp_rows};
}

Model::Parts EnginePlan::PartsOf(Weights& weights, int rank,
                                 absl::Span<const LayerCache> layers) const {
  return {.config = &config(),
          .weights = &weights.views(rank),
          .experts = &weights.experts(rank),
          .dispatch = &devices_->dispatch(rank),
          .device = &devices_->device(rank),
          .layers = layers,
          .drafts = plans_drafter(),
          .omitted_points = settings_.options.omitted_points,
          .graphs = settings_.options.graphs,
          .with_text = settings_.with_text,
          .shards = &settings_.shards,
          .rank = rank};
}

int64_t EnginePlan::exchange_bytes() const {
  return settings_.ranks() > 1 && !devices_->front().host_memory() ? ExchangeDeviceBytes() : 0;
}

absl::Status EnginePlan::PlanMemory(Weights& weights) {
  cache_shape_ = CacheShape(weights);
  limits_ = Limits();
  DSV4_ASSIGN_OR_RETURN(cache_, PlanKvCache(cache_shape_));
  EngineInfo& info = mutable_info();
  info.cache_bytes = info.workspace_bytes = 0;
  for (int rank = 0; rank < settings_.ranks(); ++rank) {
    DeviceBytes& device = info.devices[static_cast<size_t>(rank)];
    DSV4_ASSIGN_OR_RETURN(device.workspace,
                          Model::PlanBytes(PartsOf(weights, rank, cache_.layers), limits_));
    device.workspace += exchange_bytes();
    device.cache = cache_.bytes.total();
    info.cache_bytes += device.cache;
    info.workspace_bytes += device.workspace;
  }
  if (!settled_) info.second_set_operators = devices_->second_set_operators();
  Predict();
  return absl::OkStatus();
}

void EnginePlan::Predict() {
  EngineInfo& info = mutable_info();
  const Device& device = devices_->front();
  const DeviceRates table =
      RatesOf(info.backend, device.traits(), device.integrated(), info.threads);
  const Expectation expected =
      Expect(WorkOf(info, config(), weight_format_), WithMeasured(table, info.backend, measured_));
  info.expected_decode = expected.decode;
  info.expected_prefill = expected.prefill;
}

void EnginePlan::Measure(const std::vector<std::string>& files) {
  EngineInfo& info = mutable_info();
  measured_ = MeasureRates(info, WorkOf(info, config(), weight_format_), &devices_->front(), files);
  const std::string text = TextOf(measured_);
  if (text.empty()) return;
  Predict();
  Log(LogLevel::kInfo, text);
  Note(text);
}

void EnginePlan::Note(const std::string& text) {
  std::string& reason = mutable_info().backend_reason;
  absl::StrAppend(&reason, reason.empty() ? "" : "; ", text);
}

}  // namespace dsv4
