// SPDX-License-Identifier: Apache-2.0
// Converts matrices from the checkpoint's layout to the layout that a device's kernels read, with
// the backend's pack_weight, a stage of rows at a time, in stream order.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/op/pack_weight.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

// The packed format of a routed expert's matrix that runs in this format. `blocks`: of kBlocks.
constexpr WeightFormat PackedFormatOf(ExpertFormat format, BlockType blocks) {
  switch (format) {
    case ExpertFormat::kNvfp4:
      return WeightFormat::kNvfp4;
    case ExpertFormat::kFp8:
      return WeightFormat::kFp8F32;
    case ExpertFormat::kBlocks:
      return BlocksFormat(blocks);
    case ExpertFormat::kMxfp4:
      break;
  }
  return WeightFormat::kFp4;
}

class WeightPacker {
 public:
  // Device memory for rows in the checkpoint's layout.
  struct Stage {
    std::byte *data = nullptr, *scale = nullptr;
    int64_t data_bytes = 0, scale_bytes = 0;
  };
  // A matrix on the host. `pinned`: its memory is of Device::AllocateHost and must not change until
  // the stream has read it. Else it may change when Pack returns.
  struct Source {
    const uint8_t *data = nullptr, *scale = nullptr;  // or the bytes of F32 scales
    bool pinned = false;
  };
  // The packed matrix on the device; `scale` is null if the format has none.
  struct Packed {
    const std::byte* data = nullptr;
    const uint8_t* scale = nullptr;
  };

  WeightPacker() = default;
  WeightPacker(Device* device, Dispatch* dispatch) : device_(device), dispatch_(dispatch) {}

  static int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k);
  // Points a view to its packed matrix. REQUIRES: kernels run its format.
  static void Point(const Packed& packed, Fp8Weight* weight);
  static void Point(const Packed& packed, ExpertMatrix* expert);
  // The addresses of a matrix that is packed at `to`.
  static Packed At(std::byte* to, WeightFormat format, int64_t n, int64_t k);
  // Chooses the kernel that packs such weights. Errors: Unsupported, naming it.
  absl::Status Prepare(const Stage& stage, WeightFormat format, int64_t n, int64_t k) const;

  // Packs to the PackedBytes at `to`: any memory that the device's kernels can write.
  absl::StatusOr<Packed> Pack(const Stage& stage, std::byte* to, WeightFormat format, int64_t n,
                              int64_t k, const Source& from) const;

 private:
  Device* device_ = nullptr;
  Dispatch* dispatch_ = nullptr;
};

}  // namespace dsv4
