// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weight_upload.h"

#include <algorithm>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 256;
// Rows that are packed at once; their scales are far fewer.
constexpr int64_t kStageDataBytes = int64_t{32} << 20, kStageScaleBytes = int64_t{4} << 20;

// As many whole blocks of rows as the stage holds.
int64_t StageRows(WeightFormat format, int64_t k) {
  const WeightBytes block = StoredWeightBytes(format, kPackRowBlock, k);
  const int64_t blocks = std::min(kStageDataBytes / block.data,
                                  block.scale > 0 ? kStageScaleBytes / block.scale : INT64_MAX);
  return blocks * kPackRowBlock;
}

}  // namespace

int64_t WeightUpload::RawBytes(int64_t bytes) { return RoundUp<int64_t>(bytes, kAlignment); }

int64_t WeightUpload::PackedBytes(WeightFormat format, int64_t n, int64_t k) {
  const WeightBytes bytes = PackedWeightBytes(format, n, k);
  return RawBytes(bytes.data) + RawBytes(bytes.scale);
}

absl::Status WeightUpload::Prepare(WeightFormat format, int64_t n, int64_t k) {
  if (StageRows(format, k) == 0) {
    return Unsupported("a weight of ", k, " columns is too wide for the upload's stage");
  }
  return dispatch_->Prepare(PackWeightParams{.format = format, .n = n, .k = k, .rows = n});
}

absl::Status WeightUpload::Allocate(int64_t bytes) {
  DSV4_ASSIGN_OR_RETURN(memory_, device_->Allocate(bytes, "weights"));
  DSV4_ASSIGN_OR_RETURN(
      stage_, device_->Allocate(kStageDataBytes + kStageScaleBytes, "upload of the weights"));
  return absl::OkStatus();
}

std::byte* WeightUpload::Place(int64_t bytes) {
  std::byte* const place = memory_.data() + end_;
  end_ += RawBytes(bytes);
  return place;
}

absl::Status WeightUpload::Raw(const void* host, int64_t bytes, const std::byte** data) {
  std::byte* const to = Place(bytes);
  *data = to;
  return device_->Upload(to, static_cast<const std::byte*>(host), bytes);
}

absl::Status WeightUpload::Packed(std::byte* to, WeightFormat format, int64_t n, int64_t k,
                                  const uint8_t* host_data, const uint8_t* host_scale,
                                  const std::byte** data, const uint8_t** scale) {
  const DeviceScope scope(device_);
  const WeightBytes packed = PackedWeightBytes(format, n, k);
  PackWeightParams params{.format = format, .n = n, .k = k};
  params.dst_data = to;
  if (packed.scale > 0) params.dst_scale = reinterpret_cast<uint8_t*>(to + RawBytes(packed.data));
  *data = params.dst_data;
  *scale = params.dst_scale;
  const int64_t stage_rows = StageRows(format, k);
  for (; params.row_begin < n; params.row_begin += params.rows) {
    params.rows = std::min(stage_rows, n - params.row_begin);
    const WeightBytes before = StoredWeightBytes(format, params.row_begin, k);
    const WeightBytes part = StoredWeightBytes(format, params.rows, k);
    params.src_data = stage_.data();
    DSV4_RETURN_IF_ERROR(device_->Upload(
        stage_.data(), reinterpret_cast<const std::byte*>(host_data) + before.data, part.data));
    if (part.scale > 0) {
      std::byte* const stage_scale = stage_.data() + kStageDataBytes;
      params.src_scale = reinterpret_cast<const uint8_t*>(stage_scale);
      DSV4_RETURN_IF_ERROR(device_->Upload(
          stage_scale, reinterpret_cast<const std::byte*>(host_scale) + before.scale, part.scale));
    }
    DSV4_RETURN_IF_ERROR(dispatch_->Run(LaunchContext{.stream = &device_->stream()}, params));
  }
  return absl::OkStatus();
}

absl::StatusOr<Buffer> WeightUpload::Finish() {
  DSV4_RETURN_IF_ERROR(device_->Finish());
  stage_ = Buffer();
  return std::move(memory_);
}

}  // namespace dsv4
