// SPDX-License-Identifier: Apache-2.0
// Masks of tokens that may be chosen, on a device with memory of its own. They stay there from step
// to step: one is sent when it is asked for the first time, or when others took its place.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/device/device.h"

namespace dsv4 {

class TokenMasks {
 public:
  // Device bytes of masks for passes that use up to `masks` at once; 0 on a device with host
  // memory.
  static int64_t DeviceBytes(const Device& device, int32_t masks, int64_t vocab);
  // `memory`: DeviceBytes, 64-byte aligned. `with_text` is read once; empty: all tokens.
  absl::Status Place(Device* device, int32_t masks, int64_t vocab, std::byte* memory,
                     absl::Span<const uint32_t> with_text);

  // A pass begins: masks that were asked for before it may lose their place to those of it.
  void Begin() { ++pass_; }
  // The device's copy of `mask`, [vocab / 32 rounded up]; of that of all tokens with text where it
  // is empty. `id`, not 0, is that of equal masks alone. REQUIRES: Begin, at most `masks` since.
  absl::StatusOr<const uint32_t*> OnDevice(absl::Span<const uint32_t> mask, uint64_t id);

 private:
  struct SentMask {
    uint64_t id = 0;    // 0: empty
    int64_t pass = -1;  // that asked for it last
  };
  uint32_t* MaskOf(size_t index) const;

  Device* device_ = nullptr;
  int64_t vocab_ = 0;
  std::byte* memory_ = nullptr;  // the mask of tokens with text, then those of sent_
  std::vector<SentMask> sent_;
  int64_t pass_ = 0;
};

}  // namespace dsv4
