// SPDX-License-Identifier: Apache-2.0
#include "lib/model/shard.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"

namespace dsv4 {
namespace {

constexpr int64_t kBlock = kFp8Block;  // rows that share scales

Fp8Weight RowsOf(const Fp8Weight& w, const Slice& rows) {
  Fp8Weight part = w;
  part.n = rows.size();
  part.data += rows.begin * w.k;
  const int64_t scales = rows.begin / kBlock * CeilDiv(w.k, kBlock);
  if (w.scale != nullptr) part.scale += scales;
  if (w.f32_scale != nullptr) part.f32_scale += scales;
  return part;
}

Fp4Weight RowsOf(const Fp4Weight& w, const Slice& rows) {
  Fp4Weight part = w;
  part.n = rows.size();
  part.data += rows.begin * (w.k / 2);
  part.scale += rows.begin * (w.k / kFp4Run);
  return part;
}

Nvfp4Weight RowsOf(const Nvfp4Weight& w, const Slice& rows) {
  Nvfp4Weight part = w;
  part.n = rows.size();
  part.data += rows.begin * (w.k / 2);
  part.scale += rows.begin * (w.k / kNvfp4Run);
  return part;
}

ExpertMatrix RowsOf(const ExpertMatrix& w, const Slice& rows) {
  switch (w.format) {
    case ExpertFormat::kNvfp4:
      return RowsOf(w.nvfp4(), rows);
    case ExpertFormat::kFp8:
      return RowsOf(w.fp8(), rows);
    case ExpertFormat::kMxfp4:
      break;
  }
  return RowsOf(w.mxfp4(), rows);
}

Bf16Weight RowsOf(const Bf16Weight& w, const Slice& rows) {
  Bf16Weight part = w;
  part.n = rows.size();
  part.data += rows.begin * w.k;
  return part;
}

int64_t StoredBytes(const ExpertMatrix& w) {
  switch (w.format) {
    case ExpertFormat::kNvfp4:
      return w.n * w.k / 2 + w.n * (w.k / kNvfp4Run);
    case ExpertFormat::kFp8:
      return w.n * w.k + CeilDiv(w.n, kBlock) * CeilDiv(w.k, kBlock) *
                             (w.f32_scale != nullptr ? int64_t{sizeof(float)} : 1);
    case ExpertFormat::kMxfp4:
      break;
  }
  return w.n * w.k / 2 + w.n * (w.k / kFp4Run);
}

Slice Scaled(const Slice& slice, int64_t factor) {
  return {slice.begin * factor, slice.end * factor};
}

class Cutter {
 public:
  Cutter(const ModelConfig& config, const Shards& shards, int rank)
      : groups_(shards.groups[rank]),
        heads_(Scaled(groups_, config.num_attention_heads / config.o_groups)),
        low_rank_(Scaled(groups_, config.o_lora_rank)),
        hidden_(shards.hidden[rank]),
        inter_(shards.inter[rank]) {}

  void Cut(BlockWeights* block) const {
    AttentionWeights& attn = block->attn;
    attn.sink += heads_.begin;
    attn.wq_b = RowsOf(attn.wq_b, Scaled(heads_, kHeadDim));
    attn.wo_a = RowsOf(attn.wo_a, low_rank_);
    attn.wo_b = RowsOf(attn.wo_b, hidden_);
    MoeWeights& moe = block->moe;
    for (size_t e = 0; e < moe.experts.size(); ++e) {
      ExpertWeights& expert = moe.experts[e];
      expert.w1 = RowsOf(expert.w1, inter_);
      expert.w3 = RowsOf(expert.w3, inter_);
      expert.w2 = RowsOf(expert.w2, hidden_);
      moe.expert_table[e] = &expert;
    }
    moe.table = moe.expert_table.data();
    moe.shared_w1 = RowsOf(moe.shared_w1, inter_);
    moe.shared_w3 = RowsOf(moe.shared_w3, inter_);
    moe.shared_w2 = RowsOf(moe.shared_w2, hidden_);
  }

  void Cut(DrafterWeights* drafter) const {
    for (BlockWeights& block : drafter->blocks) Cut(&block);
    if (drafter->kind != DrafterKind::kMtp) return;
    drafter->mtp.e_proj = RowsOf(drafter->mtp.e_proj, hidden_);
    drafter->mtp.h_proj = RowsOf(drafter->mtp.h_proj, hidden_);
  }

 private:
  const Slice groups_, heads_, low_rank_, hidden_, inter_;
};

}  // namespace

Slices::Slices(int64_t total, int64_t unit, int ranks) : ranks_(static_cast<size_t>(ranks)) {
  const int64_t blocks = CeilDiv(total, unit);
  for (int rank = 0; rank < ranks; ++rank) {
    slices_[static_cast<size_t>(rank)] = {
        .begin = std::min(blocks * rank / ranks * unit, total),
        .end = std::min(blocks * (rank + 1) / ranks * unit, total)};
  }
}

absl::StatusOr<Shards> Shards::Of(const ModelConfig& config, int ranks) {
  if (ranks > kMaxRanks || config.o_groups % ranks != 0) {
    std::string counts = "1";
    for (int count = 2; count <= kMaxRanks; ++count) {
      if (config.o_groups % count == 0) absl::StrAppend(&counts, ", ", count);
    }
    return InvalidArgument("a model with o_groups ", config.o_groups, " cannot be shared out to ",
                           ranks, " devices; to these counts it can: ", counts);
  }
  return Shards{.ranks = ranks,
                .groups = Slices(config.o_groups, 1, ranks),
                .hidden = Slices(config.hidden_size, kBlock, ranks),
                .inter = Slices(config.moe_intermediate_size, kBlock, ranks),
                .vocab = Slices(config.vocab_size, kBlock, ranks)};
}

WeightViews ShardOf(const WeightViews& whole, const ModelConfig& config, const Shards& shards,
                    int rank) {
  const Cutter cutter(config, shards, rank);
  WeightViews part{.embed = whole.embed,
                   .head = RowsOf(whole.head, shards.vocab[rank]),
                   .norm = whole.norm,
                   .hc_head = whole.hc_head,
                   .layers = whole.layers,
                   .drafter = nullptr};
  for (BlockWeights& layer : part.layers) cutter.Cut(&layer);
  if (whole.drafter != nullptr) {
    part.drafter = std::make_unique<DrafterWeights>(*whole.drafter);
    cutter.Cut(part.drafter.get());
  }
  return part;
}

int64_t SharedOutBytes(const WeightViews& views) {
  int64_t bytes = views.head.n * views.head.k * 2;
  const auto add = [&](const ExpertMatrix& w) { bytes += StoredBytes(w); };
  const auto add_block = [&](const BlockWeights& w) {
    for (const Fp8Weight* matrix : {&w.attn.wq_b, &w.attn.wo_a, &w.attn.wo_b, &w.moe.shared_w1,
                                    &w.moe.shared_w3, &w.moe.shared_w2}) {
      add(*matrix);
    }
    for (const ExpertWeights& expert : w.moe.experts) {
      for (const ExpertMatrix* matrix : {&expert.w1, &expert.w3, &expert.w2}) add(*matrix);
    }
  };
  for (const BlockWeights& layer : views.layers) add_block(layer);
  if (views.drafter == nullptr) return bytes;
  for (const BlockWeights& block : views.drafter->blocks) add_block(block);
  if (views.drafter->kind == DrafterKind::kMtp) {
    add(views.drafter->mtp.e_proj);
    add(views.drafter->mtp.h_proj);
  }
  return bytes;
}

// Per layer: output groups, attention's y, products, the experts' y; then logits.
ExchangeCost ExchangeOf(const ModelConfig& config, int ranks, int64_t activation_bytes) {
  if (ranks == 1) return {};
  const int64_t products = (config.num_experts_per_tok + 1) * config.moe_intermediate_size;
  const int64_t layer = config.o_groups * config.o_lora_rank + 2 * config.hidden_size + products;
  return {.exchanges = 4 * config.num_hidden_layers + 1,
          .bytes = config.num_hidden_layers * layer * activation_bytes +
                   config.vocab_size * static_cast<int64_t>(sizeof(float))};
}

}  // namespace dsv4
