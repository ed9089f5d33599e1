// SPDX-License-Identifier: Apache-2.0
// Moves weights into a device's own memory: matrices are packed, everything else goes as it is.
// Transfers are asynchronous: the next tensor is read while the last one travels.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/model/weight_packer.h"

namespace dsv4 {

class WeightUpload {
 public:
  WeightUpload(Device* device, Dispatch* dispatch) : device_(device), packer_(device, dispatch) {}

  // What a weight that is not packed will take.
  static int64_t RawBytes(int64_t bytes);
  // See WeightPacker.
  absl::Status Prepare(WeightFormat format, int64_t n, int64_t k) const;

  absl::Status Allocate(int64_t bytes);

  // The next `bytes` of the memory. REQUIRES: Allocate counted them.
  std::byte* Place(int64_t bytes);
  // The next weight, from host memory that may change on return; *data receives where the device
  // reads it.
  absl::Status Raw(const void* host, int64_t bytes, const std::byte** data);
  // See WeightPacker::Pack.
  absl::StatusOr<WeightPacker::Packed> Pack(std::byte* to, WeightFormat format, int64_t n,
                                            int64_t k, const WeightPacker::Source& from) const;

  // Waits for all of it; the memory, and frees what only the way there needed.
  absl::StatusOr<Buffer> Finish();

 private:
  WeightPacker::Stage stage() const;

  Device* const device_;
  const WeightPacker packer_;
  Buffer memory_;
  Buffer stage_;  // rows of one weight, as the checkpoint has them
  int64_t end_ = 0;
};

}  // namespace dsv4
