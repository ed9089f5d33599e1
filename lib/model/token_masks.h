// SPDX-License-Identifier: Apache-2.0
// A cache of masks of allowed tokens on a device with its own memory. A mask is uploaded when it is
// first used, and again after other masks have replaced it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/device/device.h"

namespace dsv4 {

class TokenMasks {
 public:
  // Device bytes for passes that use up to `masks` masks; 0 for a device that reads host memory.
  static int64_t DeviceBytes(const Device& device, int32_t masks, int64_t vocab);
  // `memory`: DeviceBytes, 64-byte aligned. `with_text` is read once; empty: all tokens.
  absl::Status Place(Device* device, int32_t masks, int64_t vocab, std::byte* memory,
                     absl::Span<const uint32_t> with_text);

  // Begins a pass: masks of earlier passes may be replaced.
  void Begin() { ++pass_; }
  // The device's copy of `mask`, [vocab / 32 rounded up]. Empty: the mask of all tokens with text.
  // `id`: not 0; equal ids mean equal masks. REQUIRES: at most `masks` masks since Begin.
  absl::StatusOr<const uint32_t*> OnDevice(absl::Span<const uint32_t> mask, uint64_t id);

 private:
  struct SentMask {
    uint64_t id = 0;    // 0: empty
    int64_t pass = -1;  // the last pass that used it
  };
  uint32_t* MaskOf(size_t index) const;

  Device* device_ = nullptr;
  int64_t vocab_ = 0;
  std::byte* memory_ = nullptr;  // the mask of tokens with text, then those of sent_
  std::vector<SentMask> sent_;
  int64_t pass_ = 0;
};

}  // namespace dsv4
