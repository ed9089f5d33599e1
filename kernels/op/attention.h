// SPDX-License-Identifier: Apache-2.0
// Contracts of the attention operators (model.md 4.2 to 4.4): preparation of queries and window
// rows, the compressors, the indexer, and sparse attention over window and compressed rows.
//
// Rows of the cache are stored in the format of their pool (kernels/op/kv_layout.h). kPacked and
// kIndexFp4 hold what the quantisers of these contracts give, exactly; they are for launches in
// which kQuantWindowRow and kQuantCompressedRow, or kQuantIndexKey, are in force. kBf16 rounds what
// is not a bf16 number. kFp8PerTensor rounds all elements to e4m3 in place of those quantisers.
#pragma once

#include "absl/types/span.h"

#include "kernels/op/kv_layout.h"
#include "kernels/op/op.h"
#include "kernels/op/step_rows.h"

namespace dsv4 {

// q: per head q * rsqrt(mean(q^2) + eps) (kRoundQNorm), RoPE on the last 64 dims (kRoundRope), in
// place; where window rows are kFp8PerTensor also rounded to e4m3 with their scale. kv: RMSNorm(kv;
// kv_norm) (kRoundRmsNorm), RoPE (kRoundRope), act_quant 64 round trip of the first 448
// (kQuantWindowRow), written to the row of its position. Rows of -1 blocks do not occur. index_q,
// where there is one: RoPE on the last 64 of 128 dims with step.rope.compressed (kRoundRope),
// Hadamard of size 128 times 128^-0.5 (kRoundHadamard), fp4_act_quant round trip
// (kQuantIndexQuery), in place.
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

// The gated pooling of one compressor (model.md 4.3). For each sequence: adds its rows to the
// state, writes the state at each of its saved states, and the row of every compressed block that
// ends in them: pooled (kRoundPooling), RMSNorm (kRoundRmsNorm), RoPE of the compressed block's
// first position (kRoundRope), then act_quant 64 round trip of the first 448 (kQuantCompressedRow);
// for the indexer instead Hadamard (kRoundHadamard) and fp4_act_quant round trip (kQuantIndexKey).
// The state layout is kv_layout.h's. Softmax over the entries of a compressed block runs online,
// position by position, so that the split of a sequence into steps does not change a bit. Nor do
// saved states: each is the state that a step of its rows alone would leave.
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
  RowPool rows{};      // of d elements; compressed block g of a sequence: block
                       // compressed_kv_blocks[g * ratio / 256], slot g % (256 / ratio)
  int64_t dim() const { return index_keys ? kIndexKeyElements : kKvRowElements; }
  int64_t width() const { return ratio == kCsaRatio ? 2 * dim() : dim(); }
};

// score(g) = sum_h (weights[h] * weight_scale) * max(0, q[h] . key[g]) in f32 for every compressed
// block visible at the row's position; the topk compressed blocks with the highest scores (ties:
// the lowest compressed block) are selected.
struct IndexScoreTopkParams {
  static constexpr Op kOp = Op::kIndexScoreTopk;
  const StepRows* step = nullptr;
  int32_t heads = 0;  // index heads
  int32_t topk = 0;
  const void* q = nullptr;        // [T, heads, 128] act
  const void* weights = nullptr;  // [T, heads] act: output of weights_proj
  float weight_scale = 0;         // 128^-0.5 * heads^-0.5
  RowPool keys{};                 // rows of 128, ratio 4
  int32_t* selected =
      nullptr;  // [T, topk]: compressed blocks of the row's own sequence, ascending, then -1
};

// o[t, h] = sum_n p_n row_n / (sum_n p_n + exp(sink[h] - max)), p_n = exp(q . row_n * scale - max),
// over the window rows of positions max(window_begin, t - 127) .. t and the compressed rows: the
// selected compressed blocks (ratio 4), every visible compressed block (ratio 128), none (ratio 0).
// With block_rows, all rows of a sequence see the same window rows: those of positions
// max(window_begin, b - 128) .. b + rows - 1, where b is the sequence's first position. Rounded
// (kRoundAttention), then inverse RoPE of the row's position on the last 64 dims
// (kRoundInverseRope). The maximum includes the sink. A kernel sums the rows in an order that
// follows from the query's position and compressed blocks alone, so that a query's bits do not
// depend on its company; the reference in the order window (ascending position), then compressed
// blocks (ascending).
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
  void* o = nullptr;       // [T, H, 512] act; may be q
  int32_t block_rows = 0;  // ratio 0 only: bound of a sequence's rows; 0: the window is causal
};

// The formats that a backend's kernels read and write.
struct BackendRowFormats {
  absl::Span<const RowFormat> rows, index_keys;
};

// For a backend's `supports`: Unsupported, with the formats it has, when a pool has another one.
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
// `context`: the step's bound of positions. `selected`: topk, 0 where none are chosen.
CallDims DimsOf(const IndexScoreTopkParams& params);   // rows, context
CallDims DimsOf(const SparseAttentionParams& params);  // rows, ratio, context, selected

}  // namespace dsv4
