// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weight_placement.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "lib/base/status_macros.h"
#include "lib/model/expert_format.h"

namespace dsv4 {

bool WeightPlacement::IsPacked(const Bf16Weight* view) const {
  if (view == &weights_->embed) return false;
  if (weights_->drafter == nullptr) return true;
  const DsparkWeights& dspark = weights_->drafter->dspark;
  return view != &dspark.markov_w1 && view != &dspark.markov_w2 && view != &dspark.confidence;
}

int64_t WeightPlacement::CountsBytes(int64_t blocks) const {
  return blocks * config_.n_routed_experts * static_cast<int64_t>(sizeof(ExpertCounts));
}

absl::Status WeightPlacement::Plan(const std::vector<WeightSpec>& specs) {
  weights_->ranks_.clear();
  weights_->ranks_.resize(targets_.ranks.size());
  views_.assign(targets_.ranks.size(), {});
  weights_->device_bytes_ = 0;
  std::vector<RankBytes> sizes;
  for (size_t rank = 0; rank < targets_.ranks.size(); ++rank) {
    DSV4_RETURN_IF_ERROR(PlanRank(specs, static_cast<int>(rank)));
    sizes.push_back(weights_->ranks_[rank].sizes);
  }
  const auto blocks = static_cast<int64_t>(MoeLayersOf(weights_).size());
  DSV4_ASSIGN_OR_RETURN(weights_->residency_,
                        PlanResidency(targets_.budgets, blocks, config_.n_routed_experts, sizes,
                                      targets_.ranks.front().device->integrated()));
  const ResidencyPlan& plan = weights_->residency_;
  const bool moves = plan.on_device < plan.placed();
  if (moves) DSV4_RETURN_IF_ERROR(weights_->CountUse(targets_.profile));
  for (Weights::Rank& own : weights_->ranks_) {
    own.bytes = own.sizes.other + plan.device_slots() * own.sizes.expert();
    if (moves) own.bytes += own.sizes.counts;
    if (plan.on_disk > 0) own.bytes += own.sizes.pack;
    weights_->device_bytes_ += own.bytes;
  }
  return absl::OkStatus();
}

absl::Status WeightPlacement::PlanRank(const std::vector<WeightSpec>& specs, int rank) {
  Weights::Rank& own = weights_->ranks_[static_cast<size_t>(rank)];
  own.views = ShardOf(*weights_, config_, targets_.shards, rank);
  WeightTable table(config_);
  table.AddAll(&own.views);
  for (const WeightSpec& spec : table.specs())
    views_[static_cast<size_t>(rank)].push_back(spec.view);
  const WeightTarget& target = targets_.ranks[static_cast<size_t>(rank)];
  const WeightUpload upload(target.device, target.dispatch);
  ExpertFetcher::StagePlan stage;
  for (const WeightSpec& spec : specs) {
    const Slice own_rows = RowsOfRank(spec, targets_.shards, rank);
    if (own_rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(PlanWeight(spec, own_rows.size(), upload, &own.sizes));
    if (spec.expert.expert < 0) continue;
    ExpertMatrix matrix = **std::get_if<ExpertMatrix*>(&spec.view);
    matrix.n = own_rows.size();
    stage.Add(spec.matrix, matrix, FormatOf(spec));
  }
  const auto blocks = static_cast<int64_t>(MoeLayersOf(&own.views).size());
  own.sizes.counts = WeightUpload::RawBytes(CountsBytes(blocks)) +
                     WeightUpload::RawBytes(blocks * static_cast<int64_t>(sizeof(uint32_t))) +
                     WeightUpload::RawBytes(ExpertStreamer::DeviceBytes(config_.n_routed_experts));
  own.sizes.stage = stage.bytes().host;
  own.stage = stage.bytes().device;
  own.sizes.pack =
      WeightUpload::RawBytes(own.stage.data_bytes) + WeightUpload::RawBytes(own.stage.scale_bytes);
  for (const MoeWeights* moe : MoeLayersOf(&own.views)) {
    const auto experts = static_cast<int64_t>(moe->experts.size());
    own.sizes.other +=
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(ExpertWeights))) +
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(const ExpertWeights*)));
  }
  return absl::OkStatus();
}

absl::Status WeightPlacement::PlanWeight(const WeightSpec& spec, int64_t n,
                                         const WeightUpload& upload, RankBytes* bytes) const {
  const auto packed = [&](WeightFormat format) {
    const int64_t size = WeightPacker::PackedBytes(format, n, spec.k);
    if (spec.expert.expert < 0) {
      bytes->other += size;
    } else if (spec.expert.expert >= config_.n_routed_experts - targets_.budgets.cpu_experts) {
      bytes->cpu += CpuExperts::BytesOf(FormatOf(spec), n, spec.k);
    } else {
      // Slots are of one size, whatever the formats of blocks.
      int64_t& largest = bytes->matrices[static_cast<size_t>(spec.matrix)];
      largest = std::max(largest, size);
    }
    return upload.Prepare(format, n, spec.k);
  };
  if (Fp8Weight* const* fp8 = std::get_if<Fp8Weight*>(&spec.view)) {
    if ((*fp8)->f32_scale == nullptr) return packed(WeightFormat::kFp8);
    // They may turn out to be powers of two, and take less.
    DSV4_RETURN_IF_ERROR(upload.Prepare(WeightFormat::kFp8, n, spec.k));
    return packed(WeightFormat::kFp8F32);
  }
  if (std::holds_alternative<ExpertMatrix*>(spec.view))
    return packed(PackedFormatOf(FormatOf(spec)));
  if (const auto* view = std::get_if<Bf16Weight*>(&spec.view); view && IsPacked(*view)) {
    return packed(WeightFormat::kBf16);
  }
  const bool wide = std::holds_alternative<const float**>(spec.view) ||
                    std::holds_alternative<const int32_t**>(spec.view);
  bytes->other += WeightUpload::RawBytes(n * std::max<int64_t>(spec.k, 1) * (wide ? 4 : 2));
  return absl::OkStatus();
}

ExpertFormat WeightPlacement::FormatOf(const WeightSpec& spec) const {
  return MoeLayersOf(weights_)[static_cast<size_t>(spec.expert.block)]->format;
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
    DSV4_ASSIGN_OR_RETURN(own.cpu_experts, CpuExperts::Allocate(plan));
    if (plan.on_disk > 0) sources_[rank].resize(static_cast<size_t>(plan.all()));
  }
  return absl::OkStatus();
}

bool WeightPlacement::StaysOnDisk(const WeightSpec& spec) const {
  return spec.expert.expert >= 0 && weights_->residency_.TierOf(spec.expert) == ExpertTier::kDisk;
}

absl::Status WeightPlacement::Send(const WeightSpec& spec, size_t index) {
  for (size_t rank = 0; rank < uploads_.size(); ++rank) {
    if (!targets_.ranks[rank].here) continue;
    const Slice rows = RowsOfRank(spec, targets_.shards, static_cast<int>(rank));
    const ViewPointer& view = views_[rank][index];
    CutRows(spec.view, rows, view);
    if (spec.expert.expert >= 0 && weights_->residency_.IsCpus(spec.expert)) {
      KeepForCpu(spec, rank, *std::get_if<ExpertMatrix*>(&view));
      continue;
    }
    if (StaysOnDisk(spec)) {
      KeepOnDisk(spec, rank, *std::get_if<ExpertMatrix*>(&view));
      continue;
    }
    if (rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(
        SendWeight(spec, rows.size(), weights_->ranks_[rank].experts, view, &uploads_[rank]));
  }
  return absl::OkStatus();
}

void WeightPlacement::KeepForCpu(const WeightSpec& spec, size_t rank, ExpertMatrix* matrix) {
  weights_->ranks_[rank].cpu_experts.Keep(spec.expert, spec.matrix, *matrix);
  matrix->data = matrix->scale = nullptr;
  matrix->f32_scale = nullptr;
}

void WeightPlacement::KeepOnDisk(const WeightSpec& spec, size_t rank, ExpertMatrix* matrix) {
  const ResidencyPlan& plan = weights_->residency_;
  const ExpertSlots& experts = weights_->ranks_[rank].experts;
  const ExpertFormat format = FormatOf(spec);
  const StoredBytes whole = StoredBytesOf(**std::get_if<ExpertMatrix*>(&spec.view));
  sources_[rank][experts.IndexOf(spec.expert)][static_cast<size_t>(spec.matrix)] = {
      spec.name, *matrix, whole.data + whole.scale, format};
  matrix->format = format;
  WeightPacker::Point(WeightPacker::At(experts.At(plan.guest_slot(), spec.matrix),
                                       PackedFormatOf(format), matrix->n, matrix->k),
                      matrix);
}

// The `n` rows that `view` points to, whose place on the device it receives.
absl::Status WeightPlacement::SendWeight(const WeightSpec& spec, int64_t n,
                                         const ExpertSlots& experts, const ViewPointer& view,
                                         WeightUpload* upload) const {
  const int64_t k = spec.k, elements = n * std::max<int64_t>(k, 1);
  const auto raw = [&](auto* view) {  // a pointer to plain elements
    const std::byte* data = nullptr;
    const absl::Status status =
        upload->Raw(*view, elements * static_cast<int64_t>(sizeof(**view)), &data);
    *view = reinterpret_cast<std::remove_reference_t<decltype(*view)>>(data);
    return status;
  };
  const auto packed = [&](const void* data, const void* scale, WeightFormat format) {
    std::byte* const to = spec.expert.expert < 0
                              ? upload->Place(WeightPacker::PackedBytes(format, n, k))
                              : experts.At(experts.SlotOf(spec.expert), spec.matrix);
    return upload->Pack(
        to, format, n, k,
        {.data = static_cast<const uint8_t*>(data), .scale = static_cast<const uint8_t*>(scale)});
  };
  const auto* whole = std::get_if<Bf16Weight*>(&spec.view);
  struct Sender {
    bool packs;  // a bf16 matrix
    decltype(raw)& raw_;
    decltype(packed)& packed_;
    absl::Status operator()(const float** view) { return raw_(view); }
    absl::Status operator()(const uint16_t** view) { return raw_(view); }
    absl::Status operator()(const int32_t** view) { return raw_(view); }
    absl::Status operator()(Bf16Weight* view) {
      if (!packs) return raw_(&view->data);
      DSV4_ASSIGN_OR_RETURN(const auto there, packed_(view->data, nullptr, WeightFormat::kBf16));
      view->data = reinterpret_cast<const uint16_t*>(there.data);
      return absl::OkStatus();
    }
    absl::Status operator()(Fp8Weight* view) {
      const bool f32 = view->f32_scale != nullptr;
      DSV4_ASSIGN_OR_RETURN(
          const auto there,
          packed_(view->data, f32 ? static_cast<const void*>(view->f32_scale) : view->scale,
                  f32 ? WeightFormat::kFp8F32 : WeightFormat::kFp8));
      WeightPacker::Point(there, view);
      return absl::OkStatus();
    }
    absl::Status operator()(ExpertMatrix* view) {
      DSV4_ASSIGN_OR_RETURN(const auto there,
                            packed_(view->data, ScaleBytesOf(*view), PackedFormatOf(view->format)));
      WeightPacker::Point(there, view);
      return absl::OkStatus();
    }
  };
  return std::visit(Sender{whole != nullptr && IsPacked(*whole), raw, packed}, view);
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
  if (plan.on_device == plan.placed()) return absl::OkStatus();
  if (rank == 0) {
    DSV4_ASSIGN_OR_RETURN(weights_->read_times_,
                          MeasureExpertReads(plan, own.experts, target.device));
  }
  auto* const counts = reinterpret_cast<ExpertCounts*>(upload->Place(CountsBytes(plan.blocks)));
  auto* const calls = reinterpret_cast<uint32_t*>(
      upload->Place(plan.blocks * static_cast<int64_t>(sizeof(uint32_t))));
  ExpertStreamer::Parts streamed{
      .plan = plan,
      .device = target.device,
      .slots = &own.experts,
      .main_blocks = config_.num_hidden_layers,
      .memory = upload->Place(ExpertStreamer::DeviceBytes(config_.n_routed_experts))};
  const Shards& shards = targets_.shards;
  if (shards.ranks > 1) {
    streamed.parts.clear();
    const int shard = static_cast<int>(rank);
    if (!shards.inter[shard].empty()) streamed.parts.push_back(ExpertPart::kProducts);
    if (!shards.hidden[shard].empty()) streamed.parts.push_back(ExpertPart::kOutputs);
  }
  std::vector<ExpertTable::Block> blocks;
  for (MoeWeights* moe : MoeLayersOf(&own.views)) {
    moe->counts = counts + moe->block * plan.experts;
    moe->calls = calls + moe->block;
    // The table's first entry.
    const auto* table = reinterpret_cast<const std::byte*>(moe->expert_table.front());
    blocks.push_back({moe->experts.data(), const_cast<std::byte*>(table)});
  }
  streamed.blocks = blocks;
  const ExpertTable table(target.device, &own.experts, std::move(blocks));
  if (plan.on_host > 0) {
    own.mover =
        std::make_unique<ExpertMover>(targets_.budgets, plan, target.device, &own.experts, table,
                                      counts, weights_->use_.get(), rank == 0 && plan.on_disk == 0);
  }
  if (plan.streams > 0) {
    own.streamer = std::make_unique<ExpertStreamer>(std::move(streamed));
  }
  if (plan.on_disk == 0) return absl::OkStatus();
  WeightPacker::Stage pack_stage = own.stage;
  pack_stage.data = upload->Place(pack_stage.data_bytes);
  pack_stage.scale = upload->Place(pack_stage.scale_bytes);
  DSV4_ASSIGN_OR_RETURN(Buffer stage,
                        target.device->AllocateHost(own.sizes.stage, "reads of experts from disk"));
  std::vector<const int32_t*> by_token;
  for (const BlockWeights& layer : weights_->layers) {
    if (layer.moe.tid2eid == nullptr) break;
    by_token.push_back(layer.moe.tid2eid);
  }
  DSV4_ASSIGN_OR_RETURN(own.fetcher,
                        ExpertFetcher::Open({.plan = plan,
                                             .checkpoint = weights_->checkpoint_.get(),
                                             .device = target.device,
                                             .packer = WeightPacker(target.device, target.dispatch),
                                             .pack_stage = pack_stage,
                                             .slots = &own.experts,
                                             .table = table,
                                             .sources = std::move(sources_[rank]),
                                             .plain_reads = targets_.budgets.plain_reads,
                                             .use = rank == 0 ? weights_->use_.get() : nullptr,
                                             .by_token = std::move(by_token),
                                             .experts_per_token = config_.num_experts_per_tok},
                                            std::move(stage)));
  return absl::OkStatus();
}

absl::Status WeightPlacement::Complete() {
  for (size_t rank = 0; rank < uploads_.size(); ++rank) {
    if (!targets_.ranks[rank].here) continue;
    Weights::Rank& own = weights_->ranks_[rank];
    for (MoeWeights* moe : MoeLayersOf(&own.views)) {
      DSV4_RETURN_IF_ERROR(SendExperts(moe, &uploads_[rank]));
    }
    DSV4_RETURN_IF_ERROR(AddMovement(rank, &uploads_[rank]));
    const ResidencyPlan& plan = weights_->residency_;
    if (plan.cpu_experts > 0) {
      // Without experts on disk, gates count.
      const bool tells = plan.on_disk > 0 && rank == 0;
      DSV4_ASSIGN_OR_RETURN(own.share,
                            CpuShare::Open({.config = &config_,
                                            .plan = plan,
                                            .device = targets_.ranks[rank].device,
                                            .cpu = targets_.cpu.device,
                                            .dispatch = targets_.cpu.dispatch,
                                            .experts = std::move(own.cpu_experts),
                                            .use = tells ? weights_->use_.get() : nullptr}));
    }
    DSV4_ASSIGN_OR_RETURN(own.memory, uploads_[rank].Complete());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
