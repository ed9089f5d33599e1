// SPDX-License-Identifier: Apache-2.0
// Contracts of the attention operators (model.md 4.2 to 4.4): preparation of queries and window
// rows, the compressors, the indexer, and sparse attention over window and compressed rows.
//
// Cache rows are stored in the format of their pool (kernels/op/kv_layout.h):
// - kPacked and kIndexFp4 store the output of the quantisers below without loss. They require that
//   kQuantWindowRow and kQuantCompressedRow, or kQuantIndexKey, are not omitted.
// - kBf16 rounds to bf16.
// - kFp8PerTensor rounds all elements to e4m3 instead of those quantisers.
#pragma once

#include "absl/types/span.h"

#include "kernels/op/kv_layout.h"
#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"
#include "kernels/op/step_rows.h"

namespace dsv4 {

// Prepares the queries, writes the window rows and prepares the index queries, for each row:
// - q, in place: per head q * rsqrt(mean(q^2) + eps) (kRoundQNorm), then RoPE on the last 64 dims
//   (kRoundRope). With window rows in kFp8PerTensor, q is then rounded to e4m3 with their scale.
// - kv: RMSNorm(kv; kv_norm) (kRoundRmsNorm), RoPE (kRoundRope), act_quant 64 round trip of the
//   first 448 (kQuantWindowRow). The result is written to the window row of its position.
// - index_q, in place, unless null: RoPE on the last 64 of 128 dims with step.rope.compressed
//   (kRoundRope), Hadamard of size 128 times 128^-0.5 (kRoundHadamard), fp4_act_quant round trip
//   (kQuantIndexQuery).
// REQUIRES: every position of the step has a window block (no kNoBlock).
struct QkvPrepareParams {
  static constexpr Op kOp = Op::kQkvPrepare;
  const StepRows* step = nullptr;
  int32_t heads = 0;                  // H, local
  void* q = nullptr;                  // [T, H, 512] act, in and out
  const void* kv = nullptr;           // [T, 512] act: output of wkv
  const uint16_t* kv_norm = nullptr;  // [512] bf16
  float eps = 0;
  bool compressed_rope = false;  // step.rope.compressed instead of .window
  RowPool window{};              // rows of 512
  int32_t index_heads = 0;
  void* index_q = nullptr;  // [T, index_heads, 128] act, in and out; null = none
};

// The gated pooling of one compressor (model.md 4.3). For each sequence:
// - adds its rows to the compressor state (layout: kv_layout.h);
// - writes the state after each row that state_writes names;
// - writes the row of every compressed block that ends in these rows: pooled (kRoundPooling),
//   RMSNorm (kRoundRmsNorm), RoPE of the block's first position (kRoundRope). Then, for
//   attention, act_quant 64 round trip of the first 448 (kQuantCompressedRow); for the indexer,
//   Hadamard (kRoundHadamard) and fp4_act_quant round trip (kQuantIndexKey).
//
// Bits: the softmax over a compressed block is computed online, position by position. Rows and
// states are therefore the same however a sequence is split into steps. A state written inside
// a step equals the state after a step that ends at its row.
struct CompressKvParams {
  static constexpr Op kOp = Op::kCompressKv;
  const StepRows* step = nullptr;
  int32_t ratio = 0;               // 4 or 128
  bool index_keys = false;         // the indexer's compressor: rows of 128 elements
  const float* k = nullptr;        // [T, w]: wkv x; w = 2 d at ratio 4 (part A, part B), else d
  const float* z = nullptr;        // [T, w]: wgate x, without ape
  const float* ape = nullptr;      // [ratio, w], added to z at row position % ratio
  const uint16_t* norm = nullptr;  // [d] bf16
  float eps = 0;
  StatePool states{};  // this compressor's
  // Rows of d elements. Compressed block g of a sequence is row g % (256 / ratio) of the block
  // compressed_kv_blocks[g * ratio / 256].
  RowPool rows{};
  int64_t dim() const { return index_keys ? kIndexKeyElements : kKvRowElements; }
  int64_t width() const { return ratio == kCsaRatio ? 2 * dim() : dim(); }
};

// Scores every compressed block g that is visible at the row's position, in f32:
//   score(g) = sum_h (weights[h] * weight_scale) * max(0, q[h] . key[g])
// and selects the topk blocks with the highest scores. Of equal scores the lower block wins.
struct IndexScoreTopkParams {
  static constexpr Op kOp = Op::kIndexScoreTopk;
  const StepRows* step = nullptr;
  int32_t heads = 0;  // index heads
  int32_t topk = 0;
  const void* q = nullptr;        // [T, heads, 128] act
  const void* weights = nullptr;  // [T, heads] act: output of weights_proj
  float weight_scale = 0;         // 128^-0.5 * heads^-0.5
  RowPool keys{};                 // rows of 128, ratio 4
  // [T, topk]: compressed blocks of the row's own sequence, ascending, then -1.
  int32_t* selected = nullptr;
};

// Attention of each query over the cache rows n that it sees:
//   p_n = exp(q . row_n * scale - max)
//   o[t, h] = sum_n p_n row_n / (sum_n p_n + exp(sink[h] - max))
// rounded (kRoundAttention), then inverse RoPE of the query's position on the last 64 dims
// (kRoundInverseRope). `max` is the largest of the scores and sink[h].
//
// A query at position t sees
// - the window rows of positions max(window_begin, t - 127) .. t. With block_rows, all queries of a
//   sequence see those of positions max(window_begin, b - 128) .. b + rows - 1, where b is the
//   sequence's first position;
// - the compressed rows of the selected blocks (ratio 4), of every visible block (ratio 128), or
//   none (ratio 0).
//
// Bits: a kernel sums in an order that follows from the query's position and compressed blocks
// alone, so they do not depend on the other queries of the step. The reference sums window rows by
// ascending position, then compressed rows by ascending block.
struct SparseAttentionParams {
  static constexpr Op kOp = Op::kSparseAttention;
  const StepRows* step = nullptr;
  int32_t heads = 0;                  // H, local
  int32_t ratio = 0;                  // 0, 4 or 128; not 0: step.rope.compressed
  const void* q = nullptr;            // [T, H, 512] act
  RowPool window{};                   // rows of 512
  RowPool compressed{};               // rows of 512; unused at ratio 0
  const int32_t* selected = nullptr;  // [T, topk], ratio 4 only
  int32_t topk = 0;
  const float* sink = nullptr;  // [H]
  float softmax_scale = 0;
  void* o = nullptr;  // [T, H, 512] act; may be q
  // 0: the window is causal. Else (ratio 0 only) the most rows of a sequence.
  int32_t block_rows = 0;
};

// The cache row formats that a backend's kernels read and write.
struct BackendRowFormats {
  absl::Span<const RowFormat> rows, index_keys;
};

// For a backend's `supports`: Unsupported when a pool has a format that is not in `formats`. The
// message lists `formats`.
absl::Status ExpectRowFormats(const BackendRowFormats& formats, const QkvPrepareParams& params);
absl::Status ExpectRowFormats(const BackendRowFormats& formats, const CompressKvParams& params);
absl::Status ExpectRowFormats(const BackendRowFormats& formats, const IndexScoreTopkParams& params);
absl::Status ExpectRowFormats(const BackendRowFormats& formats,
                              const SparseAttentionParams& params);

absl::Status Validate(const QkvPrepareParams& params);
absl::Status Validate(const CompressKvParams& params);
absl::Status Validate(const IndexScoreTopkParams& params);
absl::Status Validate(const SparseAttentionParams& params);
Cost CostOf(const QkvPrepareParams& params);
Cost CostOf(const CompressKvParams& params);
Cost CostOf(const IndexScoreTopkParams& params);
Cost CostOf(const SparseAttentionParams& params);
LaunchTensors TensorsOf(const QkvPrepareParams& params, Device& device);
LaunchTensors TensorsOf(const CompressKvParams& params, Device& device);
LaunchTensors TensorsOf(const IndexScoreTopkParams& params, Device& device);
LaunchTensors TensorsOf(const SparseAttentionParams& params, Device& device);
// `context` is step.max_position. `selected` is topk, and 0 at ratios 0 and 128.
CallDims DimsOf(const IndexScoreTopkParams& params);   // rows, context
CallDims DimsOf(const SparseAttentionParams& params);  // rows, ratio, context, selected

}  // namespace dsv4
