// SPDX-License-Identifier: Apache-2.0
#include "lib/model/token_masks.h"

#include <algorithm>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;

int64_t MaskWords(int64_t vocab) { return CeilDiv<int64_t>(vocab, 32); }
int64_t MaskBytes(int64_t vocab) {
  return RoundUp(MaskWords(vocab) * int64_t{sizeof(uint32_t)}, kAlignment);
}

absl::Status Send(Device* device, uint32_t* to, absl::Span<const uint32_t> mask) {
  return device->Upload(reinterpret_cast<std::byte*>(to),
                        reinterpret_cast<const std::byte*>(mask.data()),
                        static_cast<int64_t>(mask.size() * sizeof(uint32_t)));
}

}  // namespace

int64_t TokenMasks::DeviceBytes(const Device& device, int32_t masks, int64_t vocab) {
  return device.host_memory() ? 0 : (1 + masks) * MaskBytes(vocab);
}

absl::Status TokenMasks::Place(Device* device, int32_t masks, int64_t vocab, std::byte* memory,
                               absl::Span<const uint32_t> with_text) {
  if (device->host_memory()) return absl::OkStatus();
  device_ = device;
  vocab_ = vocab;
  memory_ = memory;
  sent_.resize(static_cast<size_t>(masks));
  std::vector<uint32_t> text(static_cast<size_t>(MaskWords(vocab)), ~uint32_t{0});
  std::copy(with_text.begin(), with_text.end(), text.begin());
  return Send(device_, MaskOf(0), text);
}

uint32_t* TokenMasks::MaskOf(size_t index) const {
  return reinterpret_cast<uint32_t*>(memory_ + static_cast<int64_t>(index) * MaskBytes(vocab_));
}

absl::StatusOr<const uint32_t*> TokenMasks::OnDevice(absl::Span<const uint32_t> mask, uint64_t id) {
  if (mask.empty()) return MaskOf(0);
  auto sent =
      std::find_if(sent_.begin(), sent_.end(), [&](const SentMask& s) { return s.id == id; });
  const bool known = sent != sent_.end();
  if (!known) {
    sent = std::min_element(sent_.begin(), sent_.end(),
                            [](const SentMask& a, const SentMask& b) { return a.pass < b.pass; });
  }
  uint32_t* const place = MaskOf(static_cast<size_t>(1 + (sent - sent_.begin())));
  if (!known) {
    sent->id = 0;
    DSV4_RETURN_IF_ERROR(Send(device_, place, mask));
  }
  *sent = {.id = id, .pass = pass_};
  return place;
}

}  // namespace dsv4
