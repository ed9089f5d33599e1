// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weight_placement.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "lib/base/status_macros.h"

namespace dsv4 {

bool WeightPlacement::IsPacked(const Bf16Weight* slot) const {
  if (slot == &weights_->embed) return false;
  if (weights_->drafter == nullptr) return true;
  const DsparkWeights& dspark = weights_->drafter->dspark;
  return slot != &dspark.markov_w1 && slot != &dspark.markov_w2 && slot != &dspark.confidence;
}

int64_t WeightPlacement::CountsBytes(int64_t blocks) const {
  return blocks * config_.n_routed_experts * static_cast<int64_t>(sizeof(ExpertCounts));
}

std::vector<MoeWeights*> WeightPlacement::MoeLayers(WeightViews* views) {
  std::vector<MoeWeights*> layers;
  for (BlockWeights& layer : views->layers) layers.push_back(&layer.moe);
  if (views->drafter != nullptr) {
    for (BlockWeights& block : views->drafter->blocks) layers.push_back(&block.moe);
  }
  return layers;
}

absl::Status WeightPlacement::Plan(const std::vector<WeightRow>& rows) {
  weights_->ranks_.clear();
  weights_->ranks_.resize(targets_.ranks.size());
  slots_.assign(targets_.ranks.size(), {});
  weights_->device_bytes_ = 0;
  std::vector<RankBytes> sizes;
  for (size_t rank = 0; rank < targets_.ranks.size(); ++rank) {
    DSV4_RETURN_IF_ERROR(PlanRank(rows, static_cast<int>(rank)));
    sizes.push_back(weights_->ranks_[rank].sizes);
  }
  const auto blocks = static_cast<int64_t>(MoeLayers(weights_).size());
  DSV4_ASSIGN_OR_RETURN(weights_->residency_,
                        PlanResidency(targets_.budgets, blocks, config_.n_routed_experts, sizes));
  const ResidencyPlan& plan = weights_->residency_;
  for (Weights::Rank& own : weights_->ranks_) {
    own.bytes = own.sizes.other + plan.device_slots() * own.sizes.expert();
    if (plan.on_device < plan.all()) own.bytes += own.sizes.counts;
    if (plan.on_disk > 0) own.bytes += own.sizes.pack;
    weights_->device_bytes_ += own.bytes;
  }
  return absl::OkStatus();
}

absl::Status WeightPlacement::PlanRank(const std::vector<WeightRow>& rows, int rank) {
  Weights::Rank& own = weights_->ranks_[static_cast<size_t>(rank)];
  own.views = ShardOf(*weights_, config_, targets_.shards, rank);
  WeightTable table(config_);
  table.AddAll(&own.views);
  for (const WeightRow& row : table.rows()) slots_[static_cast<size_t>(rank)].push_back(row.slot);
  const WeightTarget& target = targets_.ranks[static_cast<size_t>(rank)];
  const WeightUpload upload(target.device, target.dispatch);
  ExpertFetcher::StagePlan stage;
  for (const WeightRow& row : rows) {
    const Slice own_rows = RowsOfRank(row, targets_.shards, rank);
    if (own_rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(PlanRow(row, own_rows.size(), upload, &own.sizes));
    if (row.expert.expert < 0) continue;
    ExpertMatrix matrix = **std::get_if<ExpertMatrix*>(&row.slot);
    matrix.n = own_rows.size();
    stage.Add(row.matrix, matrix);
  }
  const auto blocks = static_cast<int64_t>(MoeLayers(&own.views).size());
  own.sizes.counts = WeightUpload::RawBytes(CountsBytes(blocks)) +
                     WeightUpload::RawBytes(blocks * static_cast<int64_t>(sizeof(uint32_t)));
  own.sizes.stage = stage.bytes().host;
  own.stage = stage.bytes().device;
  own.sizes.pack =
      WeightUpload::RawBytes(own.stage.data_bytes) + WeightUpload::RawBytes(own.stage.scale_bytes);
  for (const MoeWeights* moe : MoeLayers(&own.views)) {
    const auto experts = static_cast<int64_t>(moe->experts.size());
    own.sizes.other +=
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(ExpertWeights))) +
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(const ExpertWeights*)));
  }
  return absl::OkStatus();
}

absl::Status WeightPlacement::PlanRow(const WeightRow& row, int64_t n, const WeightUpload& upload,
                                      RankBytes* bytes) const {
  const auto packed = [&](WeightFormat format) {
    const int64_t size = WeightPacker::PackedBytes(format, n, row.k);
    if (row.expert.expert < 0) {
      bytes->other += size;
    } else {
      bytes->matrices[static_cast<size_t>(row.matrix)] = size;  // of every expert
    }
    return upload.Prepare(format, n, row.k);
  };
  if (std::holds_alternative<Fp8Weight*>(row.slot)) return packed(WeightFormat::kFp8);
  if (std::holds_alternative<ExpertMatrix*>(row.slot)) return packed(WeightFormat::kFp4);
  if (const auto* slot = std::get_if<Bf16Weight*>(&row.slot); slot && IsPacked(*slot)) {
    return packed(WeightFormat::kBf16);
  }
  const bool wide = std::holds_alternative<const float**>(row.slot) ||
                    std::holds_alternative<const int32_t**>(row.slot);
  bytes->other += WeightUpload::RawBytes(n * std::max<int64_t>(row.k, 1) * (wide ? 4 : 2));
  return absl::OkStatus();
}

absl::Status WeightPlacement::Begin() {
  const ResidencyPlan& plan = weights_->residency_;
  uploads_.reserve(targets_.ranks.size());
  sources_.resize(targets_.ranks.size());
  for (size_t rank = 0; rank < targets_.ranks.size(); ++rank) {
    const WeightTarget& target = targets_.ranks[rank];
    Weights::Rank& own = weights_->ranks_[rank];
    uploads_.emplace_back(target.device, target.dispatch);
    if (!target.here) continue;
    DSV4_RETURN_IF_ERROR(uploads_[rank].Allocate(own.bytes));
    DSV4_ASSIGN_OR_RETURN(own.host_memory,
                          target.device->AllocateHost(plan.on_host * own.sizes.expert(),
                                                      "experts beyond the device's budget"));
    own.experts =
        ExpertSlots(plan, own.sizes, uploads_[rank].Place(plan.device_slots() * own.sizes.expert()),
                    own.host_memory.data());
    if (plan.on_disk > 0) sources_[rank].resize(static_cast<size_t>(plan.all()));
  }
  return absl::OkStatus();
}

bool WeightPlacement::StaysOnDisk(const WeightRow& row) const {
  return row.expert.expert >= 0 && weights_->residency_.TierOf(row.expert) == ExpertTier::kDisk;
}

absl::Status WeightPlacement::Send(const WeightRow& row, size_t index) {
  for (size_t rank = 0; rank < uploads_.size(); ++rank) {
    if (!targets_.ranks[rank].here) continue;
    const Slice rows = RowsOfRank(row, targets_.shards, static_cast<int>(rank));
    const WeightSlot& slot = slots_[rank][index];
    CutRows(row.slot, rows, slot);
    if (StaysOnDisk(row)) {
      KeepOnDisk(row, rank, *std::get_if<ExpertMatrix*>(&slot));
      continue;
    }
    if (rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(
        SendRow(row, rows.size(), weights_->ranks_[rank].experts, slot, &uploads_[rank]));
  }
  return absl::OkStatus();
}

void WeightPlacement::KeepOnDisk(const WeightRow& row, size_t rank, ExpertMatrix* matrix) {
  const ResidencyPlan& plan = weights_->residency_;
  const ExpertSlots& experts = weights_->ranks_[rank].experts;
  sources_[rank][experts.IndexOf(row.expert)][static_cast<size_t>(row.matrix)] = {row.name,
                                                                                  *matrix};
  const WeightPacker::Packed guest =
      WeightPacker::At(experts.At(plan.on_device + plan.spare, row.matrix), WeightFormat::kFp4,
                       matrix->n, matrix->k);
  *matrix =
      Fp4Weight{reinterpret_cast<const uint8_t*>(guest.data), guest.scale, matrix->n, matrix->k};
}

// The `n` rows that `slot` points to, whose place on the device it receives.
absl::Status WeightPlacement::SendRow(const WeightRow& row, int64_t n, const ExpertSlots& experts,
                                      const WeightSlot& slot, WeightUpload* upload) const {
  const int64_t k = row.k, elements = n * std::max<int64_t>(k, 1);
  const auto raw = [&](auto* slot) {  // a pointer to plain elements
    const std::byte* data = nullptr;
    const absl::Status status =
        upload->Raw(*slot, elements * static_cast<int64_t>(sizeof(**slot)), &data);
    *slot = reinterpret_cast<std::remove_reference_t<decltype(*slot)>>(data);
    return status;
  };
  const auto packed = [&](auto* slot, WeightFormat format,
                          const uint8_t* host_scale) -> absl::StatusOr<const uint8_t*> {
    std::byte* const to = row.expert.expert < 0
                              ? upload->Place(WeightPacker::PackedBytes(format, n, k))
                              : experts.At(experts.SlotOf(row.expert), row.matrix);
    DSV4_ASSIGN_OR_RETURN(
        const WeightPacker::Packed there,
        upload->Pack(to, format, n, k,
                     {.data = reinterpret_cast<const uint8_t*>(slot->data), .scale = host_scale}));
    slot->data = reinterpret_cast<decltype(slot->data)>(there.data);
    return there.scale;
  };
  const auto quantised = [&](auto* slot, WeightFormat format) -> absl::Status {
    DSV4_ASSIGN_OR_RETURN(slot->scale, packed(slot, format, slot->scale));
    return absl::OkStatus();
  };
  const auto* whole = std::get_if<Bf16Weight*>(&row.slot);
  struct Sender {
    bool packs;  // a bf16 matrix
    decltype(raw)& raw_;
    decltype(packed)& packed_;
    decltype(quantised)& quantised_;
    absl::Status operator()(const float** slot) { return raw_(slot); }
    absl::Status operator()(const uint16_t** slot) { return raw_(slot); }
    absl::Status operator()(const int32_t** slot) { return raw_(slot); }
    absl::Status operator()(Bf16Weight* slot) {
      return packs ? packed_(slot, WeightFormat::kBf16, nullptr).status() : raw_(&slot->data);
    }
    absl::Status operator()(Fp8Weight* slot) { return quantised_(slot, WeightFormat::kFp8); }
    absl::Status operator()(ExpertMatrix* slot) { return quantised_(slot, WeightFormat::kFp4); }
  };
  return std::visit(Sender{whole != nullptr && IsPacked(*whole), raw, packed, quantised}, slot);
}

// The experts' views, and the table that kernels reach them through.
absl::Status WeightPlacement::SendExperts(MoeWeights* moe, WeightUpload* upload) const {
  const auto count = static_cast<int64_t>(moe->experts.size());
  const std::byte* data = nullptr;
  DSV4_RETURN_IF_ERROR(
      upload->Raw(moe->experts.data(), count * static_cast<int64_t>(sizeof(ExpertWeights)), &data));
  const auto* experts = reinterpret_cast<const ExpertWeights*>(data);
  for (int64_t e = 0; e < count; ++e) moe->expert_table[static_cast<size_t>(e)] = experts + e;
  DSV4_RETURN_IF_ERROR(upload->Raw(
      moe->expert_table.data(), count * static_cast<int64_t>(sizeof(const ExpertWeights*)), &data));
  moe->table = reinterpret_cast<const ExpertWeights* const*>(data);
  return absl::OkStatus();
}

absl::Status WeightPlacement::AddMovement(size_t rank, WeightUpload* upload) {
  const ResidencyPlan& plan = weights_->residency_;
  Weights::Rank& own = weights_->ranks_[rank];
  const WeightTarget& target = targets_.ranks[rank];
  if (plan.on_device == plan.all()) return absl::OkStatus();
  auto* const counts = reinterpret_cast<ExpertCounts*>(upload->Place(CountsBytes(plan.blocks)));
  auto* const calls = reinterpret_cast<uint32_t*>(
      upload->Place(plan.blocks * static_cast<int64_t>(sizeof(uint32_t))));
  std::vector<ExpertTable::Block> blocks;
  for (MoeWeights* moe : MoeLayers(&own.views)) {
    moe->counts = counts + moe->block * plan.experts;
    moe->calls = calls + moe->block;
    // The table's first entry.
    const auto* table = reinterpret_cast<const std::byte*>(moe->expert_table.front());
    blocks.push_back({moe->experts.data(), const_cast<std::byte*>(table)});
  }
  const ExpertTable table(target.device, &own.experts, std::move(blocks));
  if (plan.on_host > 0) {
    own.mover = std::make_unique<ExpertMover>(targets_.budgets, plan, target.device, &own.experts,
                                              table, counts);
  }
  if (plan.on_disk == 0) return absl::OkStatus();
  WeightPacker::Stage pack_stage = own.stage;
  pack_stage.data = upload->Place(pack_stage.data_bytes);
  pack_stage.scale = upload->Place(pack_stage.scale_bytes);
  DSV4_ASSIGN_OR_RETURN(Buffer stage,
                        target.device->AllocateHost(own.sizes.stage, "reads of experts from disk"));
  DSV4_ASSIGN_OR_RETURN(own.fetcher,
                        ExpertFetcher::Open({.plan = plan,
                                             .checkpoint = weights_->checkpoint_.get(),
                                             .device = target.device,
                                             .packer = WeightPacker(target.device, target.dispatch),
                                             .pack_stage = pack_stage,
                                             .slots = &own.experts,
                                             .table = table,
                                             .sources = std::move(sources_[rank]),
                                             .plain_reads = targets_.budgets.plain_reads},
                                            std::move(stage)));
  return absl::OkStatus();
}

absl::Status WeightPlacement::Finish() {
  for (size_t rank = 0; rank < uploads_.size(); ++rank) {
    if (!targets_.ranks[rank].here) continue;
    Weights::Rank& own = weights_->ranks_[rank];
    for (MoeWeights* moe : MoeLayers(&own.views)) {
      DSV4_RETURN_IF_ERROR(SendExperts(moe, &uploads_[rank]));
    }
    DSV4_RETURN_IF_ERROR(AddMovement(rank, &uploads_[rank]));
    DSV4_ASSIGN_OR_RETURN(own.memory, uploads_[rank].Finish());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
