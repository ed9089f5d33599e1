// SPDX-License-Identifier: Apache-2.0
// Brings matrices from the checkpoint's layout to that which a device's kernels read, by the
// backend's pack_weight, a stage of rows at a time. In stream order.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/op/pack_weight.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

// How a device's kernels have a routed expert's matrix that runs in this format.
constexpr WeightFormat PackedFormatOf(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kNvfp4:
      return WeightFormat::kNvfp4;
    case ExpertFormat::kFp8:
      return WeightFormat::kFp8F32;
    case ExpertFormat::kMxfp4:
      break;
  }
  return WeightFormat::kFp4;
}

class WeightPacker {
 public:
  // Memory of the device for stored rows.
  struct Stage {
    std::byte *data = nullptr, *scale = nullptr;
    int64_t data_bytes = 0, scale_bytes = 0;
  };
  // A matrix on the host. `pinned`: memory of Device::AllocateHost, which must not change before
  // the stream has come to it; else it may change on return.
  struct Source {
    const uint8_t *data = nullptr, *scale = nullptr;  // or the bytes of F32 scales
    bool pinned = false;
  };
  // Where the device reads it; no scale where the format has none.
  struct Packed {
    const std::byte* data = nullptr;
    const uint8_t* scale = nullptr;
  };

  WeightPacker() = default;
  WeightPacker(Device* device, Dispatch* dispatch) : device_(device), dispatch_(dispatch) {}

  static int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k);
  // Has a view, whose format kernels run, point to its packed matrix.
  static void Point(const Packed& packed, Fp8Weight* weight);
  static void Point(const Packed& packed, ExpertMatrix* expert);
  // Where the matrix will be when it is packed at `to`.
  static Packed At(std::byte* to, WeightFormat format, int64_t n, int64_t k);
  // Chooses the kernel that packs such weights; Unsupported names it.
  absl::Status Prepare(const Stage& stage, WeightFormat format, int64_t n, int64_t k) const;

  // To PackedBytes from `to` on, of any memory that the device's kernels can write.
  absl::StatusOr<Packed> Pack(const Stage& stage, std::byte* to, WeightFormat format, int64_t n,
                              int64_t k, const Source& from) const;

 private:
  Device* device_ = nullptr;
  Dispatch* dispatch_ = nullptr;
};

}  // namespace dsv4
