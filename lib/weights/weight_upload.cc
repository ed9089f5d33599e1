// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/weight_upload.h"

#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 256;
// Rows that are packed at once; their scales are far fewer.
constexpr int64_t kStageDataBytes = int64_t{32} << 20, kStageScaleBytes = int64_t{4} << 20;

}  // namespace

int64_t WeightUpload::RawBytes(int64_t bytes) { return RoundUp<int64_t>(bytes, kAlignment); }

WeightPacker::Stage WeightUpload::stage() const {
  return {stage_.data(), stage_.data() + kStageDataBytes, kStageDataBytes, kStageScaleBytes};
}

absl::Status WeightUpload::Prepare(WeightFormat format, int64_t n, int64_t k) const {
  return packer_.Prepare(stage(), format, n, k);
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

absl::StatusOr<WeightPacker::Packed> WeightUpload::Pack(std::byte* to, WeightFormat format,
                                                        int64_t n, int64_t k,
                                                        const WeightPacker::Source& from) const {
  return packer_.Pack(stage(), to, format, n, k, from);
}

absl::StatusOr<Buffer> WeightUpload::Complete() {
  DSV4_RETURN_IF_ERROR(device_->Synchronize());
  stage_ = Buffer();
  return std::move(memory_);
}

}  // namespace dsv4
