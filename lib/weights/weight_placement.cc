// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/weight_placement.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "lib/base/status_macros.h"
#include "lib/packing/expert_format.h"

namespace dsv4 {

namespace {

// Whether kernels for block formats read it: bf16 of a GGUF file is that of other checkpoints.
bool NeedsBlocks(const Bf16Weight& weight) {
  return weight.in_blocks() && weight.blocks != BlockType::kBf16;
}

}  // namespace

bool WeightPlacement::IsPacked(const Bf16Weight* view) const {
  if (view == &weights_->embed) return false;
  if (weights_->drafter == nullptr) return true;
  const DsparkWeights& dspark = weights_->drafter->dspark;
  return view != &dspark.markov_w1 && view != &dspark.markov_w2 && view != &dspark.confidence;
}

absl::Status WeightPlacement::Plan(const std::vector<WeightSpec>& specs) {
  const size_t ranks = targets_.ranks.size();
  weights_->ranks_.clear();
  weights_->ranks_.resize(ranks);
  weights_->experts_.clear();
  views_.assign(ranks, {});
  weights_->device_bytes_ = 0;
  std::vector<RankBytes> sizes;
  std::vector<WeightPacker::Stage> stages(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    DSV4_ASSIGN_OR_RETURN(RankBytes own, PlanRank(specs, static_cast<int>(rank), &stages[rank]));
    sizes.push_back(own);
  }
  const auto blocks = static_cast<int64_t>(MoeLayersOf(weights_).size());
  DSV4_ASSIGN_OR_RETURN(weights_->residency_,
                        PlanResidency(targets_.budgets, blocks, config_.n_routed_experts, sizes,
                                      targets_.ranks.front().device->integrated()));
  const ResidencyPlan& plan = weights_->residency_;
  if (plan.on_device < plan.all()) DSV4_RETURN_IF_ERROR(weights_->CountUse(targets_.profile));
  for (size_t rank = 0; rank < ranks; ++rank) {
    weights_->experts_.push_back(std::make_unique<ExpertStore>(plan, sizes[rank], stages[rank]));
    int64_t& bytes = weights_->ranks_[rank].bytes;
    bytes = sizes[rank].other + weights_->experts_[rank]->device_bytes();
    weights_->device_bytes_ += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<RankBytes> WeightPlacement::PlanRank(const std::vector<WeightSpec>& specs, int rank,
                                                    WeightPacker::Stage* stage) {
  WeightViews& own = weights_->ranks_[static_cast<size_t>(rank)].views;
  own = ShardOf(*weights_, config_, targets_.shards, rank);
  WeightTable table(config_);
  table.AddAll(&own);
  for (const WeightSpec& spec : table.specs()) {
    if (Bf16Weight* const* view = std::get_if<Bf16Weight*>(&spec.view);
        view != nullptr && !NeedsBlocks(**view)) {
      (*view)->blocks = BlockType::kNone;
    }
    views_[static_cast<size_t>(rank)].push_back(spec.view);
  }
  const WeightTarget& target = targets_.ranks[static_cast<size_t>(rank)];
  const WeightUpload upload(target.device, target.dispatch);
  RankBytes sizes;
  ExpertFetcher::StagePlan reads;
  for (const WeightSpec& spec : specs) {
    const Slice own_rows = RowsOfRank(spec, targets_.shards, rank);
    if (own_rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(PlanWeight(spec, own_rows.size(), upload, &sizes));
    if (spec.expert.expert < 0) continue;
    ExpertMatrix matrix = **std::get_if<ExpertMatrix*>(&spec.view);
    matrix.n = own_rows.size();
    reads.Add(spec.matrix, matrix, FormatOf(spec));
  }
  const std::vector<MoeWeights*> blocks = MoeLayersOf(&own);
  const bool alike = std::all_of(sizes.blocks.begin(), sizes.blocks.end(),
                                 [&](const auto& block) { return block == sizes.matrices; });
  sizes.blocks.resize(alike ? 0 : blocks.size());
  *stage = reads.bytes().device;
  sizes.stage = reads.bytes().host;
  sizes.pack = ExpertStore::PackBytes(*stage);
  sizes.counts =
      ExpertStore::CountBytes(static_cast<int64_t>(blocks.size()), config_.n_routed_experts);
  for (const MoeWeights* moe : blocks) {
    const auto experts = static_cast<int64_t>(moe->experts.size());
    sizes.other +=
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(ExpertWeights))) +
        WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(const ExpertWeights*)));
  }
  return sizes;
}

absl::Status WeightPlacement::PlanWeight(const WeightSpec& spec, int64_t n,
                                         const WeightUpload& upload, RankBytes* bytes) const {
  const auto packed = [&](WeightFormat format) {
    const int64_t size = WeightPacker::PackedBytes(format, n, spec.k);
    if (spec.expert.expert < 0) {
      bytes->other += size;
    } else {
      const auto matrix = static_cast<size_t>(spec.matrix),
                 block = static_cast<size_t>(spec.expert.block);
      if (bytes->blocks.size() <= block) bytes->blocks.resize(block + 1);
      for (int64_t* largest : {&bytes->matrices[matrix], &bytes->blocks[block][matrix]}) {
        *largest = std::max(*largest, size);
      }
    }
    return upload.Prepare(format, n, spec.k);
  };
  if (Fp8Weight* const* fp8 = std::get_if<Fp8Weight*>(&spec.view)) {
    if ((*fp8)->in_blocks()) return packed(BlocksFormat((*fp8)->blocks));
    if ((*fp8)->f32_scale == nullptr) return packed(WeightFormat::kFp8);
    // They may turn out to be powers of two, and take less.
    DSV4_RETURN_IF_ERROR(upload.Prepare(WeightFormat::kFp8, n, spec.k));
    return packed(WeightFormat::kFp8F32);
  }
  if (std::holds_alternative<ExpertMatrix*>(spec.view))
    return packed(PackedFormatOf(FormatOf(spec), BlocksOf(spec)));
  if (const auto* view = std::get_if<Bf16Weight*>(&spec.view)) {
    if (NeedsBlocks(**view)) return packed(BlocksFormat((*view)->blocks));
    if (IsPacked(*view)) return packed(WeightFormat::kBf16);
  }
  const bool wide = std::holds_alternative<const float**>(spec.view) ||
                    std::holds_alternative<const int32_t**>(spec.view);
  bytes->other += WeightUpload::RawBytes(n * std::max<int64_t>(spec.k, 1) * (wide ? 4 : 2));
  return absl::OkStatus();
}

BlockType WeightPlacement::BlocksOf(const WeightSpec& spec) {
  return (*std::get_if<ExpertMatrix*>(&spec.view))->blocks;
}

ExpertFormat WeightPlacement::FormatOf(const WeightSpec& spec) const {
  return MoeLayersOf(weights_)[static_cast<size_t>(spec.expert.block)]->format;
}

absl::Status WeightPlacement::Begin() {
  PinnedBlocks* const pinned = targets_.pinned != nullptr ? targets_.pinned : &weights_->pinned_;
  pinned->Restart();
  uploads_.reserve(targets_.ranks.size());
  for (size_t rank = 0; rank < targets_.ranks.size(); ++rank) {
    const WeightTarget& target = targets_.ranks[rank];
    WeightUpload& upload = uploads_.emplace_back(target.device, target.dispatch);
    if (!target.here) continue;
    DSV4_RETURN_IF_ERROR(upload.Allocate(weights_->ranks_[rank].bytes));
    DSV4_RETURN_IF_ERROR(weights_->experts_[rank]->Allocate(
        target.device, pinned, [&](int64_t bytes) { return upload.Place(bytes); }));
  }
  pinned->FreeUntaken();
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
    ExpertStore& experts = *weights_->experts_[rank];
    if (spec.expert.expert >= 0 && !experts.HasSlot(spec.expert)) {
      const StoredBytes whole = StoredBytesOf(**std::get_if<ExpertMatrix*>(&spec.view));
      ExpertMatrix* const matrix = *std::get_if<ExpertMatrix*>(&view);
      experts.Keep(spec.expert, spec.matrix,
                   {spec.name, *matrix, whole.data + whole.scale, FormatOf(spec)}, matrix);
      continue;
    }
    if (rows.empty()) continue;
    DSV4_RETURN_IF_ERROR(SendWeight(spec, rows.size(), experts, view, &uploads_[rank]));
  }
  return absl::OkStatus();
}

// The `n` rows that `view` points to, whose place on the device it receives.
absl::Status WeightPlacement::SendWeight(const WeightSpec& spec, int64_t n,
                                         const ExpertStore& experts, const ViewPointer& view,
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
                              : experts.At(spec.expert, spec.matrix);
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
      if (NeedsBlocks(*view)) {
        DSV4_ASSIGN_OR_RETURN(const auto there,
                              packed_(view->data, nullptr, BlocksFormat(view->blocks)));
        view->data = reinterpret_cast<const uint16_t*>(there.data);
        return absl::OkStatus();
      }
      view->blocks = BlockType::kNone;  // bf16, as in other checkpoints
      if (!packs) return raw_(&view->data);
      DSV4_ASSIGN_OR_RETURN(const auto there, packed_(view->data, nullptr, WeightFormat::kBf16));
      view->data = reinterpret_cast<const uint16_t*>(there.data);
      return absl::OkStatus();
    }
    absl::Status operator()(Fp8Weight* view) {
      if (view->in_blocks()) {
        DSV4_ASSIGN_OR_RETURN(const auto there,
                              packed_(view->data, nullptr, BlocksFormat(view->blocks)));
        WeightPacker::Point(there, view);
        return absl::OkStatus();
      }
      const bool f32 = view->f32_scale != nullptr;
      DSV4_ASSIGN_OR_RETURN(
          const auto there,
          packed_(view->data, f32 ? static_cast<const void*>(view->f32_scale) : view->scale,
                  f32 ? WeightFormat::kFp8F32 : WeightFormat::kFp8));
      WeightPacker::Point(there, view);
      return absl::OkStatus();
    }
    absl::Status operator()(ExpertMatrix* view) {
      DSV4_ASSIGN_OR_RETURN(const auto there, packed_(view->data, ScaleBytesOf(*view),
                                                      PackedFormatOf(view->format, view->blocks)));
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

absl::Status WeightPlacement::OpenExperts(size_t rank) {
  const WeightTarget& target = targets_.ranks[rank];
  std::vector<const int32_t*> by_token;
  for (const BlockWeights& layer : weights_->layers) {
    if (layer.moe.tid2eid == nullptr) break;
    by_token.push_back(layer.moe.tid2eid);
  }
  return weights_->experts_[rank]->Open({.config = &config_,
                                         .shards = &targets_.shards,
                                         .rank = static_cast<int>(rank),
                                         .budgets = targets_.budgets,
                                         .checkpoint = weights_->checkpoint_.get(),
                                         .packer = WeightPacker(target.device, target.dispatch),
                                         .blocks = MoeLayersOf(&weights_->ranks_[rank].views),
                                         .by_token = std::move(by_token),
                                         .use = weights_->use_.get()},
                                        [&](int64_t bytes) { return uploads_[rank].Place(bytes); });
}

absl::Status WeightPlacement::Complete() {
  for (size_t rank = 0; rank < uploads_.size(); ++rank) {
    if (!targets_.ranks[rank].here) continue;
    Weights::Rank& own = weights_->ranks_[rank];
    for (MoeWeights* moe : MoeLayersOf(&own.views)) {
      DSV4_RETURN_IF_ERROR(SendExperts(moe, &uploads_[rank]));
    }
    DSV4_RETURN_IF_ERROR(OpenExperts(rank));
    DSV4_ASSIGN_OR_RETURN(own.memory, uploads_[rank].Complete());
  }
  return absl::OkStatus();
}

}  // namespace dsv4
