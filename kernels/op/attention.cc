// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/attention.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

absl::Status CheckStep(const char* op, const StepRows* step) {
  return Expect(step != nullptr && step->rows >= 1 && step->sequence_count >= 1 &&
                    step->sequences != nullptr && step->sequence_of != nullptr &&
                    step->positions != nullptr,
                op, ": no rows");
}

absl::Status CheckStateWrites(const SequenceRows& s) {
  if (s.rows == 0) return absl::OkStatus();  // padding
  int32_t row = 0;
  for (int32_t i = 0; i < s.state_write_count; ++i) {
    DSV4_RETURN_IF_ERROR(Expect(
        s.state_writes[i].row > row && s.state_writes[i].slot >= 0, "compress_kv: state write ", i,
        " after row ", s.state_writes[i].row, " does not follow row ", row, " or has no slot"));
    row = s.state_writes[i].row;
  }
  return Expect(s.state_slot >= 0 && row == s.rows, "compress_kv: ", s.rows,
                " rows with the last state write after row ", row);
}

absl::Status ExpectFormat(const char* what, RowFormat format,
                          absl::Span<const RowFormat> supported) {
  if (std::find(supported.begin(), supported.end(), format) != supported.end()) {
    return absl::OkStatus();
  }
  std::string names;
  for (const RowFormat each : supported) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", RowFormatName(each));
  }
  return Unsupported(what, " in format ", RowFormatName(format), "; supported: ", names);
}

// What one row of a pool takes.
int64_t RowBytes(const RowPool& pool) { return pool.row_bytes + RowScaleBytes(pool.format); }

OutputFormat KvRowFormat(const RowPool& pool) {
  return pool.format == RowFormat::kFp8PerTensor ? OutputFormat::kFp8Row : OutputFormat::kKvRow;
}

// Rows of compressed kind that row r of the step attends.
int64_t AttendedBlocks(const SparseAttentionParams& p, int64_t position) {
  if (p.ratio == 0) return 0;
  const int64_t visible = VisibleCompressedBlocks(position, p.ratio);
  return p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
}

}  // namespace

absl::Status ExpectRowFormats(const BackendRowFormats& formats, const QkvPrepareParams& p) {
  return ExpectFormat("window rows", p.window.format, formats.rows);
}

absl::Status ExpectRowFormats(const BackendRowFormats& formats, const CompressKvParams& p) {
  return p.index_keys ? ExpectFormat("index keys", p.rows.format, formats.index_keys)
                      : ExpectFormat("compressed rows", p.rows.format, formats.rows);
}

absl::Status ExpectRowFormats(const BackendRowFormats& formats, const IndexScoreTopkParams& p) {
  return ExpectFormat("index keys", p.keys.format, formats.index_keys);
}

absl::Status ExpectRowFormats(const BackendRowFormats& formats, const SparseAttentionParams& p) {
  DSV4_RETURN_IF_ERROR(ExpectFormat("window rows", p.window.format, formats.rows));
  if (p.ratio == 0) return absl::OkStatus();
  return ExpectFormat("compressed rows", p.compressed.format, formats.rows);
}

absl::Status Validate(const QkvPrepareParams& p) {
  DSV4_RETURN_IF_ERROR(CheckStep("qkv_prepare", p.step));
  return Expect(p.heads >= 1 && p.q != nullptr && p.kv != nullptr && p.kv_norm != nullptr &&
                    p.window.base != nullptr && (p.index_q != nullptr) == (p.index_heads >= 1),
                "qkv_prepare: heads ", p.heads, ", index heads ", p.index_heads,
                " or a null pointer");
}

Cost CostOf(const QkvPrepareParams& p) {
  const int64_t rows = p.step->rows, index_values = rows * p.index_heads * kIndexKeyElements;
  return {.bytes = rows * (kKvRowElements * kActBytes * (2 * p.heads + 1) + RowBytes(p.window)) +
                   index_values * 2 * kActBytes,
          .flops = rows * kKvRowElements * (p.heads + 1) * 4 + index_values * 12};
}

LaunchTensors TensorsOf(const QkvPrepareParams& p, Device&) {
  const StepRows& step = *p.step;
  std::vector<LaunchTensor::Place> places;
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& s = step.sequence(i);
    for (int64_t at = s.first_position; at < s.first_position + s.rows; ++at) {
      places.push_back({s.window_blocks[at / kWindowBlockTokens], at % kWindowBlockTokens});
    }
  }
  const LaunchTensor q = LaunchTensor::Act(p.q, int64_t{step.rows} * p.heads, kKvRowElements);
  const LaunchTensor index_q =
      LaunchTensor::Act(p.index_q, int64_t{step.rows} * p.index_heads, kIndexKeyElements);
  const bool fp8 = p.window.format == RowFormat::kFp8PerTensor;
  return {{q, LaunchTensor::Act(p.kv, step.rows, kKvRowElements), index_q},
          {{"q", fp8 ? OutputFormat::kFp8Row : OutputFormat::kHead, q},
           {"index_q", OutputFormat::kIndexRow, index_q},
           {"window", KvRowFormat(p.window),
            LaunchTensor::CacheRows(p.window, kKvRowElements, std::move(places))}}};
}

absl::Status Validate(const CompressKvParams& p) {
  DSV4_RETURN_IF_ERROR(CheckStep("compress_kv", p.step));
  DSV4_RETURN_IF_ERROR(Expect(p.ratio == kCsaRatio || p.ratio == kHcaRatio, "compress_kv: ratio ",
                              p.ratio, " is not 4 or 128"));
  for (int i = 0; i < p.step->sequence_count; ++i) {
    DSV4_RETURN_IF_ERROR(CheckStateWrites(p.step->sequence(i)));
  }
  return Expect(p.k != nullptr && p.z != nullptr && p.ape != nullptr && p.norm != nullptr &&
                    p.rows.base != nullptr,
                "compress_kv: a null pointer");
}

Cost CostOf(const CompressKvParams& p) {
  const int64_t rows = p.step->rows, state = CompressorStateFloats(p.ratio, p.dim()) * 4;
  int64_t state_writes = 0;
  for (int i = 0; i < p.step->sequence_count; ++i)
    state_writes += p.step->sequence(i).state_write_count;
  return {.bytes = rows * p.width() * 2 * 4 + (p.step->sequence_count + state_writes) * state +
                   (rows / p.ratio) * RowBytes(p.rows),
          .flops = rows * p.width() * 30};  // two exponentials and five operations an element
}

LaunchTensors TensorsOf(const CompressKvParams& p, Device&) {
  const StepRows& step = *p.step;
  LaunchTensors all{
      {LaunchTensor::F32(p.k, step.rows, p.width()), LaunchTensor::F32(p.z, step.rows, p.width())},
      {}};
  const int64_t per_block = kCompressedKvBlockTokens / p.ratio;
  std::vector<LaunchTensor::Place> places;
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& s = step.sequence(i);
    for (int64_t g = s.first_position / p.ratio; g < (s.first_position + s.rows) / p.ratio; ++g) {
      places.push_back({s.compressed_kv_blocks[g / per_block], g % per_block});
    }
    for (int32_t w = 0; w < s.state_write_count; ++w) {
      const auto* state = reinterpret_cast<const float*>(p.states.Slot(s.state_writes[w].slot));
      all.out.push_back({"state", OutputFormat::kF32,
                         LaunchTensor::F32(state, 1, CompressorStateFloats(p.ratio, p.dim()))});
    }
  }
  all.out.push_back({p.index_keys ? "keys" : "rows",
                     p.index_keys ? OutputFormat::kIndexRow : KvRowFormat(p.rows),
                     LaunchTensor::CacheRows(p.rows, p.dim(), std::move(places))});
  return all;
}

absl::Status Validate(const IndexScoreTopkParams& p) {
  DSV4_RETURN_IF_ERROR(CheckStep("index_score_topk", p.step));
  return Expect(p.heads >= 1 && p.topk >= 1 && p.q != nullptr && p.weights != nullptr &&
                    p.keys.base != nullptr && p.selected != nullptr,
                "index_score_topk: heads ", p.heads, ", topk ", p.topk, " or a null pointer");
}

Cost CostOf(const IndexScoreTopkParams& p) {
  Cost cost{
      .bytes = int64_t{p.step->rows} * (p.heads * (kIndexKeyElements + 1) * kActBytes + p.topk * 4),
      .flops = 0};
  for (int i = 0; i < p.step->sequence_count; ++i) {
    const SequenceRows& s = p.step->sequence(i);
    const int64_t last = VisibleCompressedBlocks(s.first_position + s.rows - 1, kCsaRatio);
    if (last > p.topk) cost.bytes += last * RowBytes(p.keys);
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t visible = VisibleCompressedBlocks(s.first_position + r, kCsaRatio);
      // All compressed blocks are selected without a score when they fit.
      if (visible > p.topk) cost.flops += visible * p.heads * (2 * kIndexKeyElements + 3);
    }
  }
  return cost;
}

LaunchTensors TensorsOf(const IndexScoreTopkParams& p, Device&) {
  const int64_t rows = p.step->rows;
  return {{LaunchTensor::Act(p.q, rows * p.heads, kIndexKeyElements),
           LaunchTensor::Act(p.weights, rows, p.heads)},
          {{"selected", OutputFormat::kChoice, LaunchTensor::Int32(p.selected, rows, p.topk)}}};
}

CallDims DimsOf(const IndexScoreTopkParams& p) {
  const StepRows step = p.step == nullptr ? StepRows{} : *p.step;
  return {{"rows", step.rows}, {"context", step.max_position}};
}

absl::Status Validate(const SparseAttentionParams& p) {
  DSV4_RETURN_IF_ERROR(CheckStep("sparse_attention", p.step));
  DSV4_RETURN_IF_ERROR(Expect(p.ratio == 0 || p.ratio == kCsaRatio || p.ratio == kHcaRatio,
                              "sparse_attention: ratio ", p.ratio, " is not 0, 4 or 128"));
  if (p.block_rows != 0) {
    DSV4_RETURN_IF_ERROR(Expect(p.block_rows > 0 && p.ratio == 0, "sparse_attention: blocks of ",
                                p.block_rows, " rows at ratio ", p.ratio));
    for (int i = 0; i < p.step->sequence_count; ++i) {
      const int32_t rows = p.step->sequence(i).rows;
      DSV4_RETURN_IF_ERROR(Expect(rows <= p.block_rows, "sparse_attention: a block of ", rows,
                                  " rows; the bound is ", p.block_rows));
    }
  }
  return Expect(p.heads >= 1 && p.q != nullptr && p.o != nullptr && p.sink != nullptr &&
                    p.window.base != nullptr && (p.ratio == 0 || p.compressed.base != nullptr) &&
                    (p.ratio != kCsaRatio || (p.selected != nullptr && p.topk >= 1)),
                "sparse_attention: heads ", p.heads, ", topk ", p.topk, " or a null pointer");
}

Cost CostOf(const SparseAttentionParams& p) {
  Cost cost{.bytes = int64_t{p.step->rows} * p.heads * kKvRowElements * 2 * kActBytes, .flops = 0};
  for (int i = 0; i < p.step->sequence_count; ++i) {
    const SequenceRows& s = p.step->sequence(i);
    const int64_t end = s.first_position + s.rows;
    // Each row that any query of the sequence sees is read once.
    const int64_t reach = kWindowTokens - (p.block_rows > 0 ? 0 : 1);  // before the first row
    const int64_t window = std::min<int64_t>(end - s.window_begin, s.rows + reach);
    int64_t compressed_blocks = p.ratio == 0 ? 0 : VisibleCompressedBlocks(end - 1, p.ratio);
    if (p.ratio == kCsaRatio)
      compressed_blocks = std::min<int64_t>(compressed_blocks, int64_t{s.rows} * p.topk);
    cost.bytes += window * RowBytes(p.window) + compressed_blocks * RowBytes(p.compressed);
    for (int64_t r = 0; r < s.rows; ++r) {
      const int64_t position = s.first_position + r;
      const int64_t attended =
          p.block_rows > 0 ? window
                           : std::min<int64_t>(position + 1 - s.window_begin, kWindowTokens) +
                                 AttendedBlocks(p, position);
      cost.flops += attended * p.heads * kKvRowElements * 4;
    }
  }
  return cost;
}

LaunchTensors TensorsOf(const SparseAttentionParams& p, Device&) {
  const int64_t rows = int64_t{p.step->rows} * p.heads;
  return {{LaunchTensor::Act(p.q, rows, kKvRowElements),
           LaunchTensor::Int32(p.ratio == kCsaRatio ? p.selected : nullptr, p.step->rows, p.topk)},
          {{"o", OutputFormat::kHead, LaunchTensor::Act(p.o, rows, kKvRowElements)}}};
}

CallDims DimsOf(const SparseAttentionParams& p) {
  const StepRows step = p.step == nullptr ? StepRows{} : *p.step;
  return {{"rows", step.rows},
          {"ratio", p.ratio},
          {"context", step.max_position},
          {"selected", p.ratio == kCsaRatio ? p.topk : 0}};
}

}  // namespace dsv4
