// SPDX-License-Identifier: Apache-2.0
#include "lib/packing/weight_packer.h"

#include <algorithm>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 256;

// As many whole blocks of rows as the stage holds.
int64_t StageRows(const WeightPacker::Stage& stage, WeightFormat format, int64_t k) {
  const WeightBytes block = StoredWeightBytes(format, kPackRowBlock, k);
  const int64_t blocks = std::min(stage.data_bytes / block.data,
                                  block.scale > 0 ? stage.scale_bytes / block.scale : INT64_MAX);
  return blocks * kPackRowBlock;
}

}  // namespace

int64_t WeightPacker::PackedBytes(WeightFormat format, int64_t n, int64_t k) {
  const WeightBytes bytes = PackedWeightBytes(format, n, k);
  return RoundUp(bytes.data, kAlignment) + RoundUp(bytes.scale, kAlignment);
}

WeightPacker::Packed WeightPacker::At(std::byte* to, WeightFormat format, int64_t n, int64_t k) {
  const WeightBytes bytes = PackedWeightBytes(format, n, k);
  if (bytes.scale == 0) return {to, nullptr};
  return {to, reinterpret_cast<const uint8_t*>(to + RoundUp(bytes.data, kAlignment))};
}

void WeightPacker::Point(const Packed& packed, Fp8Weight* weight) {
  weight->data = reinterpret_cast<const uint8_t*>(packed.data);
  if (weight->f32_scale != nullptr) {
    weight->f32_scale = reinterpret_cast<const float*>(packed.scale);
  } else {
    weight->scale = packed.scale;
  }
}

void WeightPacker::Point(const Packed& packed, ExpertMatrix* expert) {
  expert->data = reinterpret_cast<const uint8_t*>(packed.data);
  const bool f32 = PackedFormatOf(expert->format, expert->blocks) == WeightFormat::kFp8F32;
  expert->scale = f32 ? nullptr : packed.scale;
  expert->f32_scale = f32 ? reinterpret_cast<const float*>(packed.scale) : nullptr;
}

absl::Status WeightPacker::Prepare(const Stage& stage, WeightFormat format, int64_t n,
                                   int64_t k) const {
  if (StageRows(stage, format, k) == 0) {
    return Unsupported("a weight of ", k, " columns is too wide for the staging buffer");
  }
  return dispatch_->Prepare(PackWeightParams{.format = format, .n = n, .k = k, .rows = n});
}

absl::StatusOr<WeightPacker::Packed> WeightPacker::Pack(const Stage& stage, std::byte* to,
                                                        WeightFormat format, int64_t n, int64_t k,
                                                        const Source& from) const {
  const DeviceScope scope(device_);
  const Packed packed = At(to, format, n, k);
  const auto send = [&](std::byte* staged, const uint8_t* host, int64_t bytes) {
    const auto* source = reinterpret_cast<const std::byte*>(host);
    return from.pinned ? device_->Copy(staged, source, bytes)
                       : device_->Upload(staged, source, bytes);
  };
  PackWeightParams params{.format = format, .n = n, .k = k};
  params.dst_data = to;
  params.dst_scale = const_cast<uint8_t*>(packed.scale);
  const int64_t stage_rows = StageRows(stage, format, k);
  for (; params.row_begin < n; params.row_begin += params.rows) {
    params.rows = std::min(stage_rows, n - params.row_begin);
    const WeightBytes before = StoredWeightBytes(format, params.row_begin, k);
    const WeightBytes part = StoredWeightBytes(format, params.rows, k);
    params.src_data = stage.data;
    DSV4_RETURN_IF_ERROR(send(stage.data, from.data + before.data, part.data));
    if (part.scale > 0) {
      params.src_scale = reinterpret_cast<const uint8_t*>(stage.scale);
      DSV4_RETURN_IF_ERROR(send(stage.scale, from.scale + before.scale, part.scale));
    }
    DSV4_RETURN_IF_ERROR(dispatch_->Run(LaunchContext{.stream = &device_->stream()}, params));
  }
  return packed;
}

}  // namespace dsv4
