// SPDX-License-Identifier: Apache-2.0
// What a step's kernels read besides weights, cache and activations: tokens, positions, block
// tables, saves and pointer lists. On a device with memory of its own they go there in one transfer
// a step; elsewhere they are read where they are.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/op/step_rows.h"
#include "lib/device/device.h"
#include "lib/model/activations.h"

namespace dsv4 {

class StepUpload {
 public:
  // Device bytes for steps within `limits`; 0 on a device with host memory.
  static int64_t DeviceBytes(const Device& device, const StepLimits& limits);
  // `memory`: DeviceBytes, 64-byte aligned.
  void Place(Device* device, const StepLimits& limits, std::byte* memory);

  // Brings a step to the device, padded to `rows` and `sequences`, at least its own: rows beyond
  // the step's belong to no sequence (-1), sequences beyond its have no rows. *step, *tokens [rows]
  // and *rope_positions [rows] become the padded step with pointers of the device: always the same
  // ones for the same `rows` and `sequences`. Valid until the next call; what the pointers came
  // from must live as long.
  absl::Status Step(int32_t rows, int32_t sequences, StepRows* step, const int32_t** tokens,
                    const int64_t** rope_positions);
  // Two lists of `count` pointers, count at most limits.rows.
  absl::Status Pointers(int32_t count, const std::byte* const** from, std::byte* const** to);
  // A list of at most limits.logit_rows rows.
  absl::Status Rows(int32_t count, const int32_t** rows);

 private:
  // The next `count` elements of the image, from `from` where that is not null, else zeros: their
  // place in host_, from which DeviceOf is the device's.
  template <class T>
  size_t Append(const T* from, int64_t count);
  template <class T>
  T* DeviceOf(size_t place) const {
    return reinterpret_cast<T*>(image_ + place);
  }
  SequenceRows AppendTables(SequenceRows rows);

  Device* device_ = nullptr;  // null: host memory, nothing to do
  std::byte* image_ = nullptr;
  std::byte* pointers_ = nullptr;
  std::byte* rows_ = nullptr;
  std::vector<std::byte> host_;               // the image before it is sent; reserved
  std::vector<SequenceRows> host_sequences_;  // the padded step's, with the host's pointers
  std::vector<const std::byte*> list_;
};

}  // namespace dsv4
