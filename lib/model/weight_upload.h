// SPDX-License-Identifier: Apache-2.0
// Moves weights into a device's own memory: matrices through the backend's pack_weight, everything
// else as it is. Transfers are asynchronous: the next tensor is read while the last one travels.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/op/pack_weight.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

class WeightUpload {
 public:
  WeightUpload(Device* device, Dispatch* dispatch) : device_(device), dispatch_(dispatch) {}

  // What a weight will take; the sum is what Allocate asks for.
  static int64_t RawBytes(int64_t bytes);
  static int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k);
  // Chooses the kernel that packs such weights; Unsupported names it.
  absl::Status Prepare(WeightFormat format, int64_t n, int64_t k);

  absl::Status Allocate(int64_t bytes);

  // The next `bytes` of the memory. REQUIRES: Allocate counted them.
  std::byte* Place(int64_t bytes);
  // The next weight, from host memory that may change on return; *data and *scale (null where the
  // format has none) receive where the device reads it: at the next place, or in PackedBytes from
  // `to` on, of any memory that its kernels can write.
  absl::Status Raw(const void* host, int64_t bytes, const std::byte** data);
  absl::Status Packed(std::byte* to, WeightFormat format, int64_t n, int64_t k,
                      const uint8_t* host_data, const uint8_t* host_scale, const std::byte** data,
                      const uint8_t** scale);

  // Waits for all of it; the memory, and frees what only the way there needed.
  absl::StatusOr<Buffer> Finish();

 private:
  Device* const device_;
  Dispatch* const dispatch_;
  Buffer memory_;
  Buffer stage_;  // rows of one weight, as the checkpoint has them
  int64_t end_ = 0;
};

}  // namespace dsv4
