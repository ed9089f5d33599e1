// SPDX-License-Identifier: Apache-2.0
// What an engine of described weights takes of each device, and whether there is room for it.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
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
                        .available = AvailableMemory(),
                        .profile = profile_ ? &*profile_ : nullptr};
  targets.cpu = {cpu_.get(), cpu_dispatch_.get()};
  for (int rank = 0; rank < ranks(); ++rank) {
    const size_t device = DeviceOf(rank);
    targets.ranks.push_back({devices_[device].get(), dispatches_[device].get(), IsHere(rank)});
  }
  return targets;
}

absl::Status Engine::DescribeWeights(const EngineOptions& options) {
  facts_.info.weight_bytes = weights_->device_bytes() > 0
                                 ? weights_->device_bytes()
                                 : weights_->mapped_bytes() + weights_->owned_bytes();
  weight_format_ = weights_->weight_format();
  if (!facts_.config.expert_dtype.empty() && !weights_->ExpertsAre(facts_.config.expert_dtype)) {
    Log(LogLevel::kWarning, "config.json: expert_dtype is ", Quoted(facts_.config.expert_dtype),
        ", but the weights are ", weight_format_, ": the tensors are believed");
  }
  facts_.info.residency = weights_->residency();
  if (!options.expert_profile.empty() && weights_->use() == nullptr) {
    return WithArgument(
        InvalidArgument("option expert_profile = ", options.expert_profile,
                        ": all experts are in one memory, so that there are no places to choose"),
        "expert_profile");
  }
  facts_.info.token_expert_bytes = facts_.config.num_hidden_layers *
                                   facts_.config.num_experts_per_tok *
                                   facts_.info.residency.expert_bytes;
  DSV4_RETURN_IF_ERROR(ChooseDrafter(options));
  ShareOut();
  return absl::OkStatus();
}

absl::Status Engine::ChooseDrafter(const EngineOptions& options) {
  const DrafterKind own =
      weights_->drafter == nullptr ? DrafterKind::kNone : weights_->drafter->kind;
  facts_.info.checkpoint_drafter = own;
  facts_.info.drafter = DrafterKind::kNone;
  if (!options.drafts && options.max_draft_tokens == 0) return absl::OkStatus();
  facts_.info.drafter = options.drafter.value_or(own);
  if (options.drafter == DrafterKind::kNone) {
    return WithArgument(InvalidArgument("option drafter = none with max_draft_tokens = ",
                                        options.max_draft_tokens, "; expected 0"),
                        "drafter");
  }
  if (facts_.info.drafter == DrafterKind::kNone) {
    return WithArgument(
        NotFound("the checkpoint has no drafter (mtp.0.*), which max_draft_tokens = ",
                 options.max_draft_tokens, " asks for; drafter = n-gram needs none"),
        "drafter");
  }
  if (PlansDrafter() && facts_.info.drafter != own) {
    return WithArgument(NotFound("option drafter = ", DrafterName(facts_.info.drafter),
                                 ": the checkpoint's drafter is ", DrafterName(own)),
                        "drafter");
  }
  facts_.info.max_draft_tokens = facts_.MostDrafts(facts_.info.max_draft_tokens);
  return absl::OkStatus();
}

void Engine::ShareOut() {
  facts_.info.devices.resize(static_cast<size_t>(ranks()));
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = facts_.info.devices[static_cast<size_t>(rank)];
    device.weights = weights_->bytes(rank);
    if (!IsHere(rank)) continue;
    // The parts of the CPU are one device's.
    device.index = devices_.size() > 1 && devices_.front()->host_memory()
                       ? rank
                       : devices_[DeviceOf(rank)]->index();
  }
  const Dispatch& dispatch = *dispatches_.front();
  facts_.info.exchange = ExchangeOf(facts_.config, ranks(), DTypeBytes(dispatch.activation_dtype()),
                                    dispatch.quantized_rows());
}

KvCacheShape Engine::CacheShape() const {
  KvCacheShape shape{.compress_ratios = facts_.config.compress_ratios,
                     .row_format = facts_.info.cache_format,
                     .key_format = facts_.key_format,
                     .context_tokens = facts_.info.context_tokens,
                     .cache_tokens = facts_.info.cache_tokens,
                     .max_sequences = facts_.info.max_sessions,
                     .max_step_tokens = facts_.info.prefill_chunk_tokens,
                     .max_draft_tokens = facts_.info.max_draft_tokens};
  const size_t draft_layers = PlansDrafter() ? weights_->drafter->blocks.size() : 0;
  shape.compress_ratios.resize(static_cast<size_t>(facts_.config.num_hidden_layers) + draft_layers);
  shape.max_draft_slots = facts_.DraftSlots(facts_.info.max_draft_tokens);
  if (facts_.info.drafter == DrafterKind::kMtp) {
    shape.mtp_layers = 1;
    shape.streams_bytes =
        kStreams * facts_.config.hidden_size * DTypeBytes(dispatches_.front()->activation_dtype());
  }
  return shape;
}

// A step has at most one prefill chunk, and a decode row of every session with its drafts; a pass
// of an MTP block may have a row more for each.
StepLimits Engine::Limits(const EngineOptions& options) const {
  const int32_t decode_rows = facts_.info.max_sessions * (1 + facts_.info.max_draft_tokens);
  // So may one of blocks.
  const int32_t block_rows =
      facts_.info.max_sessions * facts_.DraftSlots(facts_.info.max_draft_tokens);
  const int32_t mtp_rows =
      PlansDrafter() ? std::max(facts_.info.max_sessions, block_rows - decode_rows) : 0;
  return {.rows = facts_.info.prefill_chunk_tokens + decode_rows + mtp_rows,
          .sequences = facts_.info.max_sessions,
          .logit_rows = std::max(options.logit_rows, decode_rows),
          .positions = facts_.info.context_tokens,
          .drafts = PlansDrafter() ? facts_.info.max_draft_tokens : 0,
          .decode_rows = decode_rows + mtp_rows};
}

Model::Parts Engine::ModelParts(const EngineOptions& options, int rank,
                                absl::Span<const LayerCache> layers) const {
  return {.config = &facts_.config,
          .weights = &weights_->views(rank),
          .mover = weights_->mover(rank),
          .fetches = weights_->pages() == nullptr && weights_->residency().on_disk > 0,
          .fetcher = weights_->fetcher(rank),
          .shares_experts = weights_->residency().cpu_experts > 0,
          .share = weights_->share(rank),
          .streams_experts = weights_->residency().streams > 0,
          .streamer = weights_->streamer(rank),
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
  facts_.info.cache_bytes = facts_.info.workspace_bytes = 0;
  for (int rank = 0; rank < ranks(); ++rank) {
    DeviceBytes& device = facts_.info.devices[static_cast<size_t>(rank)];
    DSV4_ASSIGN_OR_RETURN(
        device.workspace,
        Model::PlanBytes(ModelParts(options, rank, cache.layers), Limits(options)));
    device.workspace += ExchangeBytes();
    device.cache = cache.bytes.total();
    facts_.info.cache_bytes += device.cache;
    facts_.info.workspace_bytes += device.workspace;
  }
  return cache;
}

absl::Status Engine::CheckHostRoom(const EngineOptions& options) const {
  const ExpertBudgets& budgets = options.weight_budgets;
  if (!budgets.limited() && budgets.host_bytes == 0 && budgets.cpu_experts == 0) {
    return absl::OkStatus();
  }
  return ExpectHostRoom(facts_.info.residency, static_cast<int64_t>(devices_.size()), ranks(),
                        AvailableMemory());
}

absl::Status Engine::CheckRoom() const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const bool integrated = devices_[i]->integrated();
    const std::optional<int64_t> free = integrated ? AvailableMemory() : devices_[i]->FreeBytes();
    const DeviceBytes& plan = facts_.info.devices[static_cast<size_t>(first_rank_) + i];
    const ResidencyPlan& experts = facts_.info.residency;
    const int64_t reads = integrated ? experts.stage_bytes : 0;
    const int64_t cpus = integrated ? experts.cpu_bytes : 0;
    if (!free || plan.total() + reads + cpus <= *free) continue;
    return OutOfDeviceMemory(
        "cuda:", devices_[i]->index(), " (", devices_[i]->name(), ") has ", *free,
        " bytes free; the plan takes ", plan.total() + reads + cpus, " of it: weights ",
        plan.weights, ", key/value cache ", plan.cache, ", workspace ", plan.workspace,
        integrated ? absl::StrCat(", reads of experts from disk ", reads) : "",
        cpus > 0 ? absl::StrCat(", experts that the CPU computes ", cpus) : "");
  }
  return absl::OkStatus();
}

}  // namespace dsv4
