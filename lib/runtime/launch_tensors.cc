// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/launch_tensors.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/draft_logits.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/op/rope.h"
#include "kernels/reference/cache_rows.h"
#include "kernels/reference/numerics.h"
#include "kernels/sm12x/packed_layout.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

LaunchTensor Make(LaunchTensor::Type type, const void* data, int64_t rows, int64_t width,
                  int64_t stride = 0) {
  return {.type = type,
          .data = const_cast<void*>(data),
          .rows = data == nullptr ? 0 : rows,
          .width = width,
          .stride = stride == 0 ? width : stride};
}
LaunchTensor Act(const void* data, int64_t rows, int64_t width, int64_t stride = 0) {
  return Make(LaunchTensor::Type::kAct, data, rows, width, stride);
}
LaunchTensor Quantized(const void* data, int64_t rows, int64_t width, int64_t stride = 0) {
  return Make(LaunchTensor::Type::kQuantized, data, rows, width, stride);
}
LaunchTensor F32(const float* data, int64_t rows, int64_t width) {
  return Make(LaunchTensor::Type::kF32, data, rows, width);
}
LaunchTensor Int32(const int32_t* data, int64_t rows, int64_t width) {
  return Make(LaunchTensor::Type::kInt32, data, rows, width);
}
LaunchTensor CacheRows(const RowPool& pool, int64_t width,
                       std::vector<LaunchTensor::Place> places) {
  const auto rows = static_cast<int64_t>(places.size());
  return {.type = LaunchTensor::Type::kCacheRows,
          .rows = rows,
          .width = width,
          .pool = pool,
          .places = std::move(places)};
}

OutputFormat KvRowFormat(const RowPool& pool) {
  return pool.format == RowFormat::kFp8PerTensor ? OutputFormat::kFp8Row : OutputFormat::kKvRow;
}

// The activations and cache rows that a launch reads and writes. Cache rows are already the
// baseline's, because they were replaced when they were written.

LaunchTensors Of(const RopeTableParams& p) {
  return {{},
          {{"window", OutputFormat::kF32, F32(p.out.window, p.rows, 2 * kRopePairs)},
           {"compressed", OutputFormat::kF32, F32(p.out.compressed, p.rows, 2 * kRopePairs)}}};
}

LaunchTensors Of(const EmbedRowsParams& p) {
  return {{}, {{"out", OutputFormat::kBf16, Act(p.out, p.rows, p.copies * p.embed.k)}}};
}

LaunchTensors Of(const HcPostParams& p) {
  const int64_t width = 4 * p.hidden;
  return {{Act(p.y, p.rows, p.hidden), F32(p.post, p.rows, 4), F32(p.comb, p.rows, 16),
           Act(p.streams, p.rows, width)},
          {{"out", OutputFormat::kBf16, Act(p.out, p.rows, width)}}};
}

LaunchTensors Of(const HcPreParams& p) {
  LaunchTensors all;
  if (p.update.y != nullptr) {
    all = Of(UpdateOf(p));
  } else {
    all.in = {Act(p.streams, p.rows, 4 * p.hidden)};
  }
  all.out.push_back({"normed", OutputFormat::kBf16, Act(p.normed, p.rows, p.hidden)});
  all.out.push_back({"quantized", OutputFormat::kCodes, Quantized(p.quantized, p.rows, p.hidden)});
  all.out.push_back({"post", OutputFormat::kF32, F32(p.post, p.rows, 4)});
  all.out.push_back({"comb", OutputFormat::kF32, F32(p.comb, p.rows, 16)});
  return all;
}

// How many rows `row_of` [rows] of the device's reaches. A device that is lost says so when they
// are read.
int64_t RowsOf(const int32_t* row_of, int32_t rows, Device& device) {
  std::vector<int32_t> all(static_cast<size_t>(rows));
  device
      .Download(reinterpret_cast<std::byte*>(all.data()),
                reinterpret_cast<const std::byte*>(row_of), rows * int64_t{sizeof(int32_t)})
      .IgnoreError();
  return 1 + *std::max_element(all.begin(), all.end());
}

LaunchTensors Of(const HcHeadParams& p, Device& device) {
  const int64_t streams = p.row_of == nullptr ? p.rows : RowsOf(p.row_of, p.rows, device);
  LaunchTensor quantized = Quantized(p.quantized, p.rows, p.hidden, p.quantized_width);
  quantized.column = p.quantized_column;
  return {{Act(p.streams, streams, 4 * p.hidden)},
          {{"mixed", OutputFormat::kBf16, Act(p.mixed, p.rows, p.hidden)},
           {"normed", OutputFormat::kBf16, Act(p.normed, p.rows, p.hidden)},
           {"quantized", OutputFormat::kCodes, std::move(quantized)}}};
}

LaunchTensors Of(const DraftLogitsParams& p, Device& device) {
  const int64_t rows = RowsOf(p.row_of, p.rows, device);
  const LaunchTensor logits = F32(p.logits, rows, p.vocab);
  return {{Act(p.states, rows, p.hidden), logits},
          {{"logits", OutputFormat::kF32, logits},
           {"confidences", OutputFormat::kF32, F32(p.confidences, rows, 1)}}};
}

LaunchTensors Of(const MtpCombineParams& p) {
  return {{Act(p.e, p.rows, p.hidden), Act(p.h, p.rows, 4 * p.hidden)},
          {{"streams", OutputFormat::kBf16, Act(p.streams, p.rows, 4 * p.hidden)}}};
}

LaunchTensors Of(const RmsNormParams& p) {
  return {{Act(p.x, p.rows, p.dim)},
          {{"normed", OutputFormat::kBf16, Act(p.normed, p.rows, p.dim)},
           {"quantized", OutputFormat::kCodes, Quantized(p.quantized, p.rows, p.dim)}}};
}

LaunchTensors Of(const LinearFp8Params& p) {
  LaunchTensors all{{Quantized(p.x, p.rows, p.k)}, {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    all.out.push_back({"y", OutputFormat::kBf16, Act(p.parts[i].y, p.rows, p.parts[i].w.n)});
  }
  return all;
}

LaunchTensors Of(const LinearBf16Params& p) {
  LaunchTensors all{{Act(p.x, p.rows, p.k)}, {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    if (part.round_output) {
      all.out.push_back({"y", OutputFormat::kBf16, Act(part.y, p.rows, part.w.n)});
    } else {
      const auto* y = static_cast<const float*>(part.y);
      all.out.push_back({"y_f32", OutputFormat::kF32, F32(y, p.rows, part.w.n)});
    }
  }
  return all;
}

LaunchTensors Of(const OutputGroupsParams& p) {
  return {{Act(p.o, p.rows, p.groups * p.group_width)},
          {{"y", OutputFormat::kCodes, Quantized(p.y, p.rows, p.groups * p.rank)}}};
}

LaunchTensors Of(const QkvPrepareParams& p) {
  const StepRows& step = *p.step;
  std::vector<LaunchTensor::Place> places;
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& s = step.sequence(i);
    for (int64_t at = s.first_position; at < s.first_position + s.rows; ++at) {
      places.push_back({s.window_blocks[at / kWindowBlockTokens], at % kWindowBlockTokens});
    }
  }
  const LaunchTensor q = Act(p.q, int64_t{step.rows} * p.heads, kKvRowElements);
  const LaunchTensor index_q =
      Act(p.index_q, int64_t{step.rows} * p.index_heads, kIndexKeyElements);
  const bool fp8 = p.window.format == RowFormat::kFp8PerTensor;
  return {
      {q, Act(p.kv, step.rows, kKvRowElements), index_q},
      {{"q", fp8 ? OutputFormat::kFp8Row : OutputFormat::kHead, q},
       {"index_q", OutputFormat::kIndexRow, index_q},
       {"window", KvRowFormat(p.window), CacheRows(p.window, kKvRowElements, std::move(places))}}};
}

LaunchTensors Of(const CompressKvParams& p) {
  const StepRows& step = *p.step;
  LaunchTensors all{{F32(p.k, step.rows, p.width()), F32(p.z, step.rows, p.width())}, {}};
  const int64_t per_block = kCompressedKvBlockTokens / p.ratio;
  std::vector<LaunchTensor::Place> places;
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& s = step.sequence(i);
    for (int64_t g = s.first_position / p.ratio; g < (s.first_position + s.rows) / p.ratio; ++g) {
      places.push_back({s.compressed_kv_blocks[g / per_block], g % per_block});
    }
    for (int32_t w = 0; w < s.state_write_count; ++w) {
      const auto* state = reinterpret_cast<const float*>(p.states.Slot(s.state_writes[w].slot));
      all.out.push_back(
          {"state", OutputFormat::kF32, F32(state, 1, CompressorStateFloats(p.ratio, p.dim()))});
    }
  }
  all.out.push_back({p.index_keys ? "keys" : "rows",
                     p.index_keys ? OutputFormat::kIndexRow : KvRowFormat(p.rows),
                     CacheRows(p.rows, p.dim(), std::move(places))});
  return all;
}

LaunchTensors Of(const IndexScoreTopkParams& p) {
  const int64_t rows = p.step->rows;
  return {{Act(p.q, rows * p.heads, kIndexKeyElements), Act(p.weights, rows, p.heads)},
          {{"selected", OutputFormat::kChoice, Int32(p.selected, rows, p.topk)}}};
}

LaunchTensors Of(const SparseAttentionParams& p) {
  const int64_t rows = int64_t{p.step->rows} * p.heads;
  return {{Act(p.q, rows, kKvRowElements),
           Int32(p.ratio == kCsaRatio ? p.selected : nullptr, p.step->rows, p.topk)},
          {{"o", OutputFormat::kHead, Act(p.o, rows, kKvRowElements)}}};
}

LaunchTensors Of(const MoeGateParams& p) {
  return {{Act(p.x, p.rows, p.gate.k)},
          {{"experts", OutputFormat::kChoice, Int32(p.experts, p.rows, p.experts_per_token)},
           {"weights", OutputFormat::kF32, F32(p.weights, p.rows, p.experts_per_token)}}};
}

// The products of the routed experts of each row, then of the shared expert. Backends in host
// memory order the products of routed experts by expert.
LaunchTensor Products(const ExpertFfnParams& p, Device& device) {
  const int64_t pairs = int64_t{p.rows} * p.experts_per_token;
  LaunchTensor products = Act(p.products, pairs + p.rows, p.inter);
  if (!device.host_memory()) return products;
  products.stored_at.resize(static_cast<size_t>(products.rows));
  std::iota(products.stored_at.begin(), products.stored_at.end(), 0);
  std::vector<int64_t> sorted(products.stored_at.begin(), products.stored_at.begin() + pairs);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](int64_t a, int64_t b) { return p.experts[a] < p.experts[b]; });
  for (int64_t i = 0; i < pairs; ++i) {
    products.stored_at[static_cast<size_t>(sorted[static_cast<size_t>(i)])] = i;
  }
  return products;
}

LaunchTensors Of(const ExpertFfnParams& p, Device& device) {
  LaunchTensors all;
  // Only the sum of the waves is compared. It stands for both halves of the experts.
  if (p.wave == ExpertWave::kSum) {
    all.out = {{"y", OutputFormat::kSum, Act(p.y, p.rows, p.hidden)}};
    all.stands_for = 2;
  }
  if (p.wave != ExpertWave::kAll) return all;
  const LaunchTensor experts = Int32(p.experts, p.rows, p.experts_per_token);
  if (p.part == ExpertPart::kOutputs) {
    all.in = {Products(p, device), experts};
  } else {
    all.in = {Quantized(p.x, p.rows, p.hidden), experts,
              F32(p.weights, p.rows, p.experts_per_token)};
  }
  if (p.part == ExpertPart::kProducts) {
    all.out = {{"products", OutputFormat::kCodes, Products(p, device)}};
  } else {
    all.out = {{"y", OutputFormat::kSum, Act(p.y, p.rows, p.hidden)}};
  }
  return all;
}

template <class Params>
LaunchTensors As(const void* params) {
  return Of(*static_cast<const Params*>(params));
}

}  // namespace

LaunchTensors TensorsOf(Op op, const void* params, Device& device) {
  switch (op) {
    case Op::kRopeTable:
      return As<RopeTableParams>(params);
    case Op::kEmbedRows:
      return As<EmbedRowsParams>(params);
    case Op::kHcPre:
      return As<HcPreParams>(params);
    case Op::kHcPost:
      return As<HcPostParams>(params);
    case Op::kHcHead:
      return Of(*static_cast<const HcHeadParams*>(params), device);
    case Op::kRmsNorm:
      return As<RmsNormParams>(params);
    case Op::kLinearFp8:
      return As<LinearFp8Params>(params);
    case Op::kLinearBf16:
      return As<LinearBf16Params>(params);
    case Op::kQkvPrepare:
      return As<QkvPrepareParams>(params);
    case Op::kCompressKv:
      return As<CompressKvParams>(params);
    case Op::kIndexScoreTopk:
      return As<IndexScoreTopkParams>(params);
    case Op::kSparseAttention:
      return As<SparseAttentionParams>(params);
    case Op::kOutputGroups:
      return As<OutputGroupsParams>(params);
    case Op::kMoeGate:
      return As<MoeGateParams>(params);
    case Op::kExpertFfn:
      return Of(*static_cast<const ExpertFfnParams*>(params), device);
    case Op::kMtpCombine:
      return As<MtpCombineParams>(params);
    case Op::kDraftLogits:
      return Of(*static_cast<const DraftLogitsParams*>(params), device);
    default:
      return {};
  }
}

namespace {

// A pool of one row, outside the pool: the row's data, then its scales.
RowPool PoolOfOne(const RowPool& pool, std::vector<std::byte>* memory) {
  memory->resize(static_cast<size_t>(pool.row_bytes + RowScaleBytes(pool.format)));
  RowPool one = pool;
  one.base = memory->data();
  one.rows_per_block = 1;
  return one;
}

// A row of `width` e4m3 codes in the order of sm12x::QuantizedOffset, then a ue8m0 scale for each
// 128 of them: `count` elements from `column` on.
void DecodeRow(const uint8_t* row, int64_t width, int64_t column, int64_t count, float* to) {
  const float* const decoded = reference::E4M3Table();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = column + i;
    to[i] = decoded[row[sm12x::QuantizedOffset(at / 8 * 8) + at % 8]] *
            E8M0ToFloat(row[width + at / sm12x::kKSlice]);
  }
}

void EncodeRow(const float* from, int64_t width, int64_t column, int64_t count, uint8_t* row) {
  for (int64_t begin = 0; begin < count; begin += sm12x::kKSlice) {
    const float scale = reference::E4M3RunScale(from + begin, sm12x::kKSlice);
    row[width + (column + begin) / sm12x::kKSlice] =
        static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
    for (int64_t i = begin; i < begin + sm12x::kKSlice; ++i) {
      const int64_t at = column + i;
      row[sm12x::QuantizedOffset(at / 8 * 8) + at % 8] = reference::EncodeE4M3(from[i] / scale);
    }
  }
}

}  // namespace

bool LaunchMemory::StoresCodes(const LaunchTensor& tensor) const {
  return tensor.type == LaunchTensor::Type::kQuantized && backend_ == Backend::kCuda;
}

int64_t LaunchMemory::ElementBytes(const LaunchTensor& tensor) const {
  const bool activation =
      tensor.type == LaunchTensor::Type::kAct || tensor.type == LaunchTensor::Type::kQuantized;
  return activation && backend_ != Backend::kReference ? 2 : 4;
}

// Of codes, the whole row.
int64_t LaunchMemory::RowBytes(const LaunchTensor& tensor) const {
  return StoresCodes(tensor) ? sm12x::QuantizedRowBytes(tensor.stride)
                             : tensor.width * ElementBytes(tensor);
}

std::byte* LaunchMemory::RowOf(const LaunchTensor& tensor, int64_t row) const {
  auto* const data = static_cast<std::byte*>(tensor.data);
  if (!tensor.stored_at.empty()) row = tensor.stored_at[static_cast<size_t>(row)];
  return StoresCodes(tensor) ? data + row * RowBytes(tensor)
                             : data + (row * tensor.stride + tensor.column) * ElementBytes(tensor);
}

// Copies, not Download and Upload: a device writes some of it to pinned memory of the host.
absl::StatusOr<std::vector<float>> LaunchMemory::Read(const LaunchTensor& t) const {
  std::vector<float> values(static_cast<size_t>(t.rows * t.width));
  if (t.rows == 0) return values;
  std::vector<std::byte> stored;
  if (t.type == LaunchTensor::Type::kCacheRows) {
    const RowPool one = PoolOfOne(t.pool, &stored);
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto [block, slot] = t.places[static_cast<size_t>(r)];
      DSV4_RETURN_IF_ERROR(device_->Download(one.base, t.pool.Row(block, slot), t.pool.row_bytes));
      DSV4_RETURN_IF_ERROR(device_->Download(one.Scales(0, 0), t.pool.Scales(block, slot),
                                             RowScaleBytes(t.pool.format)));
      reference::LoadRow(one, 0, 0, values.data() + r * t.width);
    }
    return values;
  }
  const int64_t row_bytes = RowBytes(t);
  stored.resize(static_cast<size_t>(t.rows * row_bytes));
  for (int64_t r = 0; r < t.rows; ++r) {
    DSV4_RETURN_IF_ERROR(device_->Copy(stored.data() + r * row_bytes, RowOf(t, r), row_bytes));
  }
  DSV4_RETURN_IF_ERROR(device_->Synchronize());
  for (int64_t r = 0; r < t.rows; ++r) {
    const std::byte* const row = stored.data() + r * row_bytes;
    float* const to = values.data() + r * t.width;
    if (StoresCodes(t)) {
      DecodeRow(reinterpret_cast<const uint8_t*>(row), t.stride, t.column, t.width, to);
    } else if (t.type == LaunchTensor::Type::kInt32) {
      std::copy_n(reinterpret_cast<const int32_t*>(row), t.width, to);
    } else if (ElementBytes(t) == 4) {
      std::copy_n(reinterpret_cast<const float*>(row), t.width, to);
    } else {
      std::transform(reinterpret_cast<const uint16_t*>(row),
                     reinterpret_cast<const uint16_t*>(row) + t.width, to, Bf16ToFloat);
    }
  }
  return values;
}

absl::Status LaunchMemory::Write(const LaunchTensor& t, std::vector<float> values) const {
  if (t.rows == 0) return absl::OkStatus();
  std::vector<std::byte> stored;
  if (t.type == LaunchTensor::Type::kCacheRows) {
    const RowPool one = PoolOfOne(t.pool, &stored);
    const Point point =
        t.width == kIndexKeyElements ? Point::kQuantIndexKey : Point::kQuantWindowRow;
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto [block, slot] = t.places[static_cast<size_t>(r)];
      reference::StoreRow({}, point, one, 0, 0, values.data() + r * t.width);
      DSV4_RETURN_IF_ERROR(device_->Upload(t.pool.Row(block, slot), one.base, t.pool.row_bytes));
      DSV4_RETURN_IF_ERROR(device_->Upload(t.pool.Scales(block, slot), one.Scales(0, 0),
                                           RowScaleBytes(t.pool.format)));
    }
    return absl::OkStatus();
  }
  const int64_t row_bytes = RowBytes(t);
  stored.resize(static_cast<size_t>(t.rows * row_bytes));
  // Codes of other columns stay.
  for (int64_t r = 0; StoresCodes(t) && t.width != t.stride && r < t.rows; ++r) {
    DSV4_RETURN_IF_ERROR(device_->Copy(stored.data() + r * row_bytes, RowOf(t, r), row_bytes));
  }
  DSV4_RETURN_IF_ERROR(device_->Synchronize());
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* const from = values.data() + r * t.width;
    std::byte* const row = stored.data() + r * row_bytes;
    if (StoresCodes(t)) {
      EncodeRow(from, t.stride, t.column, t.width, reinterpret_cast<uint8_t*>(row));
    } else if (t.type == LaunchTensor::Type::kInt32) {
      std::copy_n(from, t.width, reinterpret_cast<int32_t*>(row));
    } else if (ElementBytes(t) == 4) {
      std::copy_n(from, t.width, reinterpret_cast<float*>(row));
    } else {
      std::transform(from, from + t.width, reinterpret_cast<uint16_t*>(row), FloatToBf16);
    }
    DSV4_RETURN_IF_ERROR(device_->Copy(RowOf(t, r), row, row_bytes));
  }
  return device_->Synchronize();
}

}  // namespace dsv4
