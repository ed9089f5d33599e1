// SPDX-License-Identifier: Apache-2.0
// Copies weights to a device's own memory: matrices are packed, all others keep their layout.
// Copies are asynchronous: the next tensor is read during the copy of the last one.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/packing/weight_packer.h"

namespace dsv4 {

class WeightUpload {
 public:
  WeightUpload(Device* device, Dispatch* dispatch) : device_(device), packer_(device, dispatch) {}

  // Bytes of a weight that is not packed.
  static int64_t RawBytes(int64_t bytes);
  // See WeightPacker.
  absl::Status Prepare(WeightFormat format, int64_t n, int64_t k) const;

  absl::Status Allocate(int64_t bytes);

  // The next `bytes` of the memory. REQUIRES: Allocate counted them.
  std::byte* Place(int64_t bytes);
  // Copies the next weight. The host memory may change on return. *data becomes its device address.
  absl::Status Raw(const void* host, int64_t bytes, const std::byte** data);
  // See WeightPacker::Pack.
  absl::StatusOr<WeightPacker::Packed> Pack(std::byte* to, WeightFormat format, int64_t n,
                                            int64_t k, const WeightPacker::Source& from) const;

  // Waits for all copies, frees the stage and returns the memory.
  absl::StatusOr<Buffer> Complete();

 private:
  WeightPacker::Stage stage() const;

  Device* const device_;
  const WeightPacker packer_;
  Buffer memory_;
  Buffer stage_;  // rows of one weight, as the checkpoint has them
  int64_t end_ = 0;
};

}  // namespace dsv4
