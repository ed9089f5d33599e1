// SPDX-License-Identifier: Apache-2.0
// What an engine of described weights takes of each device, and whether there is room for it.
#include <algorithm>
#include <optional>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/io/system_memory.h"
#include "lib/runtime/engine.h"

namespace dsv4 {

WeightTargets Engine::Targets(const EngineOptions& options) const {
  WeightTargets targets{.shards = shards_,
                        .ranks = {},
                        .budgets = options.weight_budgets,
                        .available = AvailableMemory()};
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
          .fetches = weights_->pages() == nullptr && weights_->residency().on_disk > 0,
          .fetcher = weights_->fetcher(rank),
          .pages = weights_->pages(),
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

absl::Status Engine::CheckHostRoom(const EngineOptions& options) const {
  const ExpertBudgets& budgets = options.weight_budgets;
  if (!budgets.limited() && budgets.host_bytes == 0) return absl::OkStatus();
  return ExpectHostRoom(info_.residency, static_cast<int64_t>(devices_.size()), ranks(),
                        AvailableMemory());
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

}  // namespace dsv4
