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

  // Brings a step to the device: *step's pointers, *tokens [T] and *rope_positions [T] become the
  // device's. Until the next call; what the pointers came from must live as long.
  absl::Status Step(StepRows* step, const int32_t** tokens, const int64_t** rope_positions);
  // Two lists of `count` pointers, count at most limits.rows.
  absl::Status Pointers(int32_t count, const std::byte* const** from, std::byte* const** to);
  // A list of at most limits.logit_rows rows.
  absl::Status Rows(int32_t count, const int32_t** rows);

 private:
  template <class T>
  T* Append(const T* from, int64_t count);
  absl::Status SendImage();

  Device* device_ = nullptr;  // null: host memory, nothing to do
  std::byte* image_ = nullptr;
  std::byte* pointers_ = nullptr;
  std::byte* rows_ = nullptr;
  std::vector<std::byte> host_;  // the image before it is sent; reserved
  std::vector<SequenceRows> sequences_;
  std::vector<const std::byte*> list_;
};

}  // namespace dsv4
