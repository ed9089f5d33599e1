// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/weight_table.h"

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/packing/expert_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kBlock = kFp8Block;  // rows that share scales

Fp8Weight RowsOf(const Fp8Weight& w, const Slice& rows) {
  Fp8Weight part = w;
  part.n = rows.size();
  if (w.in_blocks()) {
    part.data = w.block_weight().Row(rows.begin);
    return part;
  }
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
    case ExpertFormat::kBlocks:
      return BlockWeight{w.block_weight().Row(rows.begin), w.blocks, rows.size(), w.k};
    case ExpertFormat::kMxfp4:
      break;
  }
  return RowsOf(w.mxfp4(), rows);
}

Bf16Weight RowsOf(const Bf16Weight& w, const Slice& rows) {
  Bf16Weight part = w;
  part.n = rows.size();
  part.data += w.in_blocks() ? rows.begin * BlockBytes(w.blocks, w.k) / 2 : rows.begin * w.k;
  return part;
}

// For tensors with one dimension, and tensors that every rank has whole.
template <class T>
const T* RowsOf(const T* w, const Slice& rows) {
  return w + rows.begin;
}

int64_t ScaleBytes(const Fp8Weight& w) {
  return CeilDiv(w.n, kBlock) * CeilDiv(w.k, kBlock) *
         (w.f32_scale != nullptr ? int64_t{sizeof(float)} : 1);
}

// Stored bytes of a tensor with more than one dimension.
int64_t ViewBytes(const ViewPointer& view) {
  if (auto* const* w = std::get_if<ExpertMatrix*>(&view)) {
    const StoredBytes bytes = StoredBytesOf(**w);
    return bytes.data + bytes.scale;
  }
  if (auto* const* w = std::get_if<Fp8Weight*>(&view)) {
    if ((*w)->in_blocks()) return (*w)->n * BlockBytes((*w)->blocks, (*w)->k);
    return (*w)->n * (*w)->k + ScaleBytes(**w);
  }
  if (auto* const* w = std::get_if<Bf16Weight*>(&view)) {
    if ((*w)->in_blocks()) return (*w)->n * BlockBytes((*w)->blocks, (*w)->k);
    return (*w)->n * (*w)->k * 2;
  }
  return 0;  // sinks: a few numbers
}

}  // namespace

void WeightTable::Add(absl::string_view prefix, absl::string_view name, ViewPointer view, int64_t n,
                      int64_t k, Split split) {
  specs_.push_back({absl::StrCat(prefix, name), view, n, k, split});
}

void WeightTable::AddMain(WeightViews* w) {
  const std::string p;
  Add(p, "embed.weight", &w->embed, c_.vocab_size, c_.hidden_size);
  Add(p, "head.weight", &w->head, c_.vocab_size, c_.hidden_size, Split::kVocab);
  Add(p, "norm.weight", &w->norm, c_.hidden_size);
  AddHyperConnection("hc_head", kStreams, 1, &w->hc_head);
}

void WeightTable::AddLayer(int64_t layer, BlockWeights* w) {
  AddBlock(absl::StrCat("layers.", layer, "."), layer, w);
}

void WeightTable::AddDrafterInputs(DrafterWeights* w) {
  const std::string first = "mtp.0.", last = absl::StrCat("mtp.", w->blocks.size() - 1, ".");
  const int64_t hidden = c_.hidden_size, rank = c_.dspark.markov_rank;
  if (w->kind == DrafterKind::kMtp) {
    Add(first, "e_proj", &w->mtp.e_proj, hidden, hidden, Split::kHidden);
    Add(first, "h_proj", &w->mtp.h_proj, hidden, hidden, Split::kHidden);
    Add(first, "enorm.weight", &w->mtp.enorm, hidden);
    Add(first, "hnorm.weight", &w->mtp.hnorm, hidden);
    return;
  }
  const auto taps = static_cast<int64_t>(c_.dspark.target_layers.size());
  Add(first, "main_proj", &w->dspark.main_proj, hidden, taps * hidden);
  Add(first, "main_norm.weight", &w->dspark.main_norm, hidden);
  Add(last, "markov_head.markov_w1.weight", &w->dspark.markov_w1, c_.vocab_size, rank);
  Add(last, "markov_head.markov_w2.weight", &w->dspark.markov_w2, c_.vocab_size, rank);
  Add(last, "confidence_head.proj.weight", &w->dspark.confidence, 1, hidden + rank);
  for (size_t i = specs_.size() - 3; i < specs_.size(); ++i) specs_[i].widened = true;
}

void WeightTable::AddDrafter(DrafterWeights* w) {
  for (size_t i = 0; i < w->blocks.size(); ++i) {
    AddBlock(absl::StrCat("mtp.", i, "."), c_.num_hidden_layers + static_cast<int64_t>(i),
             &w->blocks[i]);
  }
  const std::string last = absl::StrCat("mtp.", w->blocks.size() - 1, ".");
  Add(last, "norm.weight", &w->norm, c_.hidden_size);
  AddHyperConnection(last + "hc_head", kStreams, 1, &w->hc_head);
  AddDrafterInputs(w);
}

void WeightTable::AddAll(WeightViews* w) {
  AddMain(w);
  for (size_t layer = 0; layer < w->layers.size(); ++layer) {
    AddLayer(static_cast<int64_t>(layer), &w->layers[layer]);
  }
  if (w->drafter != nullptr) AddDrafter(w->drafter.get());
}

void WeightTable::AddHyperConnection(const std::string& p, int64_t mixes, int64_t scales,
                                     HyperConnectionWeights* hc) {
  Add(p, "_fn", &hc->fn, mixes, kStreams * c_.hidden_size);
  Add(p, "_base", &hc->base, mixes);
  Add(p, "_scale", &hc->scale, scales);
}

void WeightTable::AddCompressor(const std::string& p, int64_t ratio, int64_t dim,
                                CompressorWeights* w) {
  const int64_t width = ratio == 4 ? 2 * dim : dim;
  Add(p, "ape", &w->ape, ratio, width);
  Add(p, "wkv.weight", &w->wkv, width, c_.hidden_size);
  Add(p, "wgate.weight", &w->wgate, width, c_.hidden_size);
  Add(p, "norm.weight", &w->norm, dim);
}

void WeightTable::AddAttention(const std::string& p, int64_t ratio, AttentionWeights* w) {
  const int64_t heads = c_.num_attention_heads, groups = c_.o_groups;
  Add(p, "attn_sink", &w->sink, heads, 0, Split::kGroups);
  Add(p, "wq_a", &w->wq_a, c_.q_lora_rank, c_.hidden_size);
  Add(p, "q_norm.weight", &w->q_norm, c_.q_lora_rank);
  Add(p, "wq_b", &w->wq_b, heads * kHeadDim, c_.q_lora_rank, Split::kGroups);
  Add(p, "wkv", &w->wkv, kHeadDim, c_.hidden_size);
  Add(p, "kv_norm.weight", &w->kv_norm, kHeadDim);
  Add(p, "wo_a", &w->wo_a, groups * c_.o_lora_rank, heads * kHeadDim / groups, Split::kGroups);
  Add(p, "wo_b", &w->wo_b, c_.hidden_size, groups * c_.o_lora_rank, Split::kHidden);
  if (ratio != 0) AddCompressor(p + "compressor.", ratio, kHeadDim, &w->compressor);
  if (ratio != 4) return;
  const std::string i = p + "indexer.";
  Add(i, "wq_b", &w->indexer.wq_b, c_.index_n_heads * kIndexHeadDim, c_.q_lora_rank);
  Add(i, "weights_proj.weight", &w->indexer.weights_proj, c_.index_n_heads, c_.hidden_size);
  AddCompressor(i + "compressor.", ratio, kIndexHeadDim, &w->indexer.compressor);
}

void WeightTable::AddMoe(const std::string& p, int64_t block, MoeWeights* w) {
  const int64_t hidden = c_.hidden_size, inter = c_.moe_intermediate_size;
  w->block = static_cast<int32_t>(block);
  Add(p, "gate.weight", &w->gate, c_.n_routed_experts, hidden);
  if (block < c_.num_hash_layers) {
    Add(p, "gate.tid2eid", &w->tid2eid, c_.vocab_size, c_.num_experts_per_tok);
  } else {
    Add(p, "gate.bias", &w->bias, c_.n_routed_experts);
  }
  w->experts.resize(static_cast<size_t>(c_.n_routed_experts));
  w->expert_table.clear();
  for (int64_t e = 0; e < c_.n_routed_experts; ++e) {
    ExpertWeights& expert = w->experts[e];
    const std::string x = absl::StrCat(p, "experts.", e, ".");
    Add(x, "w1", &expert.w1, inter, hidden, Split::kInter);
    Add(x, "w3", &expert.w3, inter, hidden, Split::kInter);
    Add(x, "w2", &expert.w2, hidden, inter, Split::kHidden);
    for (int matrix = 0; matrix < 3; ++matrix) {
      WeightSpec& spec = specs_[specs_.size() - 3 + static_cast<size_t>(matrix)];
      spec.expert = {static_cast<int32_t>(block), static_cast<int32_t>(e)};
      spec.matrix = matrix;
    }
    w->expert_table.push_back(&expert);
  }
  w->table = w->expert_table.data();
  const std::string s = p + "shared_experts.";
  Add(s, "w1", &w->shared_w1, inter, hidden, Split::kInter);
  Add(s, "w3", &w->shared_w3, inter, hidden, Split::kInter);
  Add(s, "w2", &w->shared_w2, hidden, inter, Split::kHidden);
}

void WeightTable::AddBlock(const std::string& p, int64_t layer, BlockWeights* w) {
  constexpr int64_t kMixes = (2 + kStreams) * kStreams;
  w->compress_ratio = layer < c_.num_hidden_layers ? c_.compress_ratios[layer] : 0;
  Add(p, "attn_norm.weight", &w->attn_norm, c_.hidden_size);
  Add(p, "ffn_norm.weight", &w->ffn_norm, c_.hidden_size);
  AddHyperConnection(p + "hc_attn", kMixes, 3, &w->hc_attn);
  AddHyperConnection(p + "hc_ffn", kMixes, 3, &w->hc_ffn);
  AddAttention(p + "attn.", w->compress_ratio, &w->attn);
  AddMoe(p + "ffn.", layer, &w->moe);
}

std::vector<MoeWeights*> MoeLayersOf(WeightViews* views) {
  std::vector<MoeWeights*> layers;
  for (BlockWeights& layer : views->layers) layers.push_back(&layer.moe);
  if (views->drafter != nullptr) {
    for (BlockWeights& block : views->drafter->blocks) layers.push_back(&block.moe);
  }
  return layers;
}

WeightViews ShardOf(const WeightViews& whole, const ModelConfig& config, const Shards& shards,
                    int rank) {
  WeightViews part{.embed = whole.embed,
                   .head = whole.head,
                   .norm = whole.norm,
                   .hc_head = whole.hc_head,
                   .layers = whole.layers,
                   .drafter = nullptr};
  if (whole.drafter != nullptr) part.drafter = std::make_unique<DrafterWeights>(*whole.drafter);
  WeightTable table(config);
  table.AddAll(&part);
  for (const WeightSpec& spec : table.specs()) {
    CutRows(spec.view, RowsOfRank(spec, shards, rank), spec.view);
  }
  return part;
}

int64_t SharedOutBytes(const ModelConfig& config, WeightViews* views) {
  WeightTable table(config);
  table.AddAll(views);
  int64_t bytes = 0;
  for (const WeightSpec& spec : table.specs()) {
    if (spec.split != Split::kNone) bytes += ViewBytes(spec.view);
  }
  return bytes;
}

Slice RowsOfRank(const WeightSpec& spec, const Shards& shards, int rank) {
  if (shards.ranks == 1) return {0, spec.n};
  const Slices* slices = nullptr;
  int64_t unit = 1;  // rows per element of the slices
  switch (spec.split) {
    case Split::kNone:
      break;
    case Split::kGroups:
      slices = &shards.groups;
      unit = spec.n / slices->all().back().end;
      break;
    case Split::kHidden:
      slices = &shards.hidden;
      break;
    case Split::kInter:
      slices = &shards.inter;
      break;
    case Split::kVocab:
      slices = &shards.vocab;
      break;
  }
  if (slices == nullptr) return {0, spec.n};
  const Slice& slice = (*slices)[rank];
  return {slice.begin * unit, slice.end * unit};
}

void CutRows(const ViewPointer& from, const Slice& rows, const ViewPointer& to) {
  std::visit([&](auto* whole) { *std::get<decltype(whole)>(to) = RowsOf(*whole, rows); }, from);
}

}  // namespace dsv4
