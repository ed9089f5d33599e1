// SPDX-License-Identifier: Apache-2.0
// The attention sub-layer (model.md 4.2 to 4.4).
#include "kernels/op/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/op/dense.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// The projections that read the hidden state itself, not its quantised form: both compressors' and
// the indexer's head weights.
absl::Status ProjectForCompressors(const ForwardContext& c, const BlockWeights& w) {
  LinearBf16Params p{.rows = c.step.rows, .k = c.config->hidden_size, .x = c.act.normed};
  const CompressorWeights& main = w.attn.compressor;
  p.parts[p.part_count++] = {.w = main.wkv, .y = c.act.pool_k};
  p.parts[p.part_count++] = {.w = main.wgate, .y = c.act.pool_z};
  if (w.compress_ratio == kCsaRatio) {
    const IndexerWeights& indexer = w.attn.indexer;
    p.parts[p.part_count++] = {.w = indexer.compressor.wkv, .y = c.act.index_pool_k};
    p.parts[p.part_count++] = {.w = indexer.compressor.wgate, .y = c.act.index_pool_z};
    p.parts[p.part_count++] = {
        .w = indexer.weights_proj, .y = c.act.index_weights, .round_output = true};
  }
  return c.Run(p);
}

CompressKvParams Compress(const ForwardContext& c, const BlockWeights& w, const LayerCache& cache) {
  return {.step = &c.step,
          .ratio = w.compress_ratio,
          .index_keys = false,
          .k = c.act.pool_k,
          .z = c.act.pool_z,
          .ape = w.attn.compressor.ape,
          .norm = w.attn.compressor.norm,
          .eps = static_cast<float>(c.config->rms_norm_eps),
          .states = cache.states,
          .rows = cache.compressed};
}

CompressKvParams CompressIndexKeys(const ForwardContext& c, const BlockWeights& w,
                                   const LayerCache& cache) {
  const CompressorWeights& compressor = w.attn.indexer.compressor;
  return {.step = &c.step,
          .ratio = w.compress_ratio,
          .index_keys = true,
          .k = c.act.index_pool_k,
          .z = c.act.index_pool_z,
          .ape = compressor.ape,
          .norm = compressor.norm,
          .eps = static_cast<float>(c.config->rms_norm_eps),
          .states = cache.index_states,
          .rows = cache.index_keys};
}

// The params for `rows`: the rows of c.step from `first` on.
IndexScoreTopkParams ScoreTopk(const ForwardContext& c, const LayerCache& cache,
                               const StepRows& rows, int64_t first) {
  const int64_t heads = c.config->index_n_heads, topk = c.config->index_topk;
  const int64_t element = DTypeBytes(c.act_dtype());
  return {
      .step = &rows,
      .heads = static_cast<int32_t>(heads),
      .topk = static_cast<int32_t>(topk),
      .q = static_cast<const std::byte*>(c.act.index_q) + first * heads * kIndexHeadDim * element,
      .weights = static_cast<const std::byte*>(c.act.index_weights) + first * heads * element,
      .weight_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kIndexHeadDim * heads))),
      .keys = cache.index_keys,
      .selected = c.act.selected + first * topk};
}

// Whether each rank scores some of the rows and sends the selections to the others, if that takes
// less time than scoring all rows (docs/adr/0020-exact-split.md). Not in steps of few rows: they
// are recorded before their contexts are known.
bool ScoresApart(const ForwardContext& c) {
  constexpr int32_t kFewRows = 64;
  if (c.alone() || c.planning || c.step.rows <= kFewRows) return false;
  int64_t blocks = 0;
  for (int32_t i = 0; i < c.step.sequence_count; ++i) {
    const SequenceRows& sequence = c.step.sequence(i);
    if (sequence.rows == 0) continue;  // padding
    blocks = std::max(
        blocks, VisibleCompressedBlocks(sequence.first_position + sequence.rows - 1, kCsaRatio));
  }
  return blocks >= 2 * c.config->index_topk;
}

absl::Status SelectBlocks(const ForwardContext& c, const LayerCache& cache) {
  if (!ScoresApart(c)) return c.Run(ScoreTopk(c, cache, c.step, 0));
  constexpr int64_t kUnit = 4;  // rows that kernels score together
  const Slices slices(c.step.rows, kUnit, c.shards->ranks);
  const Slice& own = c.own(slices);
  StepRows rows = c.step;
  rows.rows = static_cast<int32_t>(own.size());
  rows.sequence_of += own.begin;
  rows.positions += own.begin;
  DSV4_RETURN_IF_ERROR(c.Run(ScoreTopk(c, cache, rows, own.begin)));
  const int64_t row_bytes = c.config->index_topk * DTypeBytes(DType::kI32);
  return c.Gather(1, slices, row_bytes, c.act.selected + own.begin * c.config->index_topk,
                  c.act.selected);
}

// The rank's own.
int32_t Heads(const ForwardContext& c) {
  return static_cast<int32_t>(c.own(c.shards->groups).size() * c.config->num_attention_heads /
                              c.config->o_groups);
}

SparseAttentionParams Attend(const ForwardContext& c, const BlockWeights& w,
                             const LayerCache& cache) {
  const bool csa = w.compress_ratio == kCsaRatio;
  return {.step = &c.step,
          .heads = Heads(c),
          .ratio = w.compress_ratio,
          .q = c.act.q,
          .window = cache.window,
          .compressed = cache.compressed,
          .selected = csa ? c.act.selected : nullptr,
          .topk = csa ? static_cast<int32_t>(c.config->index_topk) : 0,
          .sink = w.attn.sink,
          .softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(kHeadDim))),
          .o = c.act.q,
          .block_rows = c.block_rows};
}

// Queries, index queries too, and the window's rows.
absl::Status RunQueries(const ForwardContext& c, const BlockWeights& w, const LayerCache& cache) {
  const ModelConfig& config = *c.config;
  const AttentionWeights& attn = w.attn;
  const float eps = static_cast<float>(config.rms_norm_eps);
  const int32_t rows = c.step.rows;
  const bool csa = w.compress_ratio == kCsaRatio;

  // Weights in block formats read what is not quantised.
  LinearFp8Params down{.rows = rows,
                       .k = config.hidden_size,
                       .x = attn.wq_a.in_blocks() ? c.act.normed : c.act.quantized,
                       .part_count = 2};
  down.parts[0] = {.w = attn.wq_a, .y = c.act.qr};
  down.parts[1] = {.w = attn.wkv, .y = c.act.kv};
  DSV4_RETURN_IF_ERROR(c.Run(down));
  const bool blocks = attn.wq_b.in_blocks();
  DSV4_RETURN_IF_ERROR(c.Run(RmsNormParams{.rows = rows,
                                           .dim = config.q_lora_rank,
                                           .x = c.act.qr,
                                           .weight = attn.q_norm,
                                           .eps = eps,
                                           .normed = blocks ? c.act.qr_quantized : nullptr,
                                           .quantized = blocks ? nullptr : c.act.qr_quantized}));
  LinearFp8Params up{
      .rows = rows, .k = config.q_lora_rank, .x = c.act.qr_quantized, .part_count = 1};
  up.parts[0] = {.w = attn.wq_b, .y = c.act.q};
  if (csa) up.parts[up.part_count++] = {.w = attn.indexer.wq_b, .y = c.act.index_q};
  DSV4_RETURN_IF_ERROR(c.Run(up));
  return c.Run(QkvPrepareParams{.step = &c.step,
                                .heads = Heads(c),
                                .q = c.act.q,
                                .kv = c.act.kv,
                                .kv_norm = attn.kv_norm,
                                .eps = eps,
                                .compressed_rope = w.compress_ratio != 0,
                                .window = cache.window,
                                .index_heads = csa ? static_cast<int32_t>(config.index_n_heads) : 0,
                                .index_q = csa ? c.act.index_q : nullptr});
}

// The rows of the compressed blocks that end in the step, and their index keys.
absl::Status RunCompressors(const ForwardContext& c, const BlockWeights& w,
                            const LayerCache& cache) {
  DSV4_RETURN_IF_ERROR(ProjectForCompressors(c, w));
  DSV4_RETURN_IF_ERROR(c.Run(Compress(c, w, cache)));
  return w.compress_ratio == kCsaRatio ? c.Run(CompressIndexKeys(c, w, cache)) : absl::OkStatus();
}

}  // namespace

absl::Status RunAttention(const ForwardContext& c, int64_t layer, const BlockWeights& w,
                          const LayerCache& cache) {
  const ModelConfig& config = *c.config;
  const AttentionWeights& attn = w.attn;
  const int32_t rows = c.step.rows;
  const auto queries = [&](const ForwardContext& on) { return RunQueries(on, w, cache); };
  const auto compressors = [&](const ForwardContext& on) { return RunCompressors(on, w, cache); };
  DSV4_RETURN_IF_ERROR(w.compress_ratio == 0 ? queries(c)
                                             : c.RunConcurrently(queries, compressors));
  if (w.compress_ratio == kCsaRatio) {
    DSV4_RETURN_IF_ERROR(SelectBlocks(c, cache));
    c.Show(layer, "index_topk", c.act.selected, DType::kI32, config.index_topk);
  }
  DSV4_RETURN_IF_ERROR(c.Run(Attend(c, w, cache)));

  const int64_t element_bytes = DTypeBytes(c.act_dtype());
  const Slices &groups = c.shards->groups, &hidden = c.shards->hidden;
  DSV4_RETURN_IF_ERROR(c.Run(
      OutputGroupsParams{.rows = rows,
                         .groups = static_cast<int32_t>(c.own(groups).size()),
                         .rank = config.o_lora_rank,
                         .group_width = config.num_attention_heads / config.o_groups * kHeadDim,
                         .wo_a = attn.wo_a,
                         .o = c.act.q,
                         .y = c.act.groups_part,
                         .quantise = !attn.wo_b.in_blocks()}));
  DSV4_RETURN_IF_ERROR(
      attn.wo_b.in_blocks()
          ? c.Gather(rows, groups, config.o_lora_rank * element_bytes, c.act.groups_part,
                     c.act.groups)
          : c.GatherQuantized(rows, groups, config.o_lora_rank, c.act.groups_part, c.act.groups));
  LinearFp8Params out{
      .rows = rows, .k = config.o_groups * config.o_lora_rank, .x = c.act.groups, .part_count = 1};
  out.parts[0] = {.w = attn.wo_b, .y = c.act.y_part};
  if (!c.own(hidden).empty()) DSV4_RETURN_IF_ERROR(c.Run(out));
  return c.Gather(rows, hidden, element_bytes, c.act.y_part, c.act.y);
}

}  // namespace dsv4
