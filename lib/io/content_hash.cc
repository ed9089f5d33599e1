// SPDX-License-Identifier: Apache-2.0
#include "lib/io/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace dsv4 {
namespace {

ContentHash FromXxh(XXH128_hash_t hash) { return {.low = hash.low64, .high = hash.high64}; }

}  // namespace

struct ContentHasher::State {
  XXH3_state_t xxh;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}

ContentHasher::~ContentHasher() = default;

void ContentHasher::Add(absl::Span<const uint8_t> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void ContentHasher::Add(absl::string_view text) {
  Add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

ContentHash ContentHasher::hash() const { return FromXxh(XXH3_128bits_digest(&state_->xxh)); }

ContentHash HashOf(absl::Span<const uint8_t> bytes) {
  return FromXxh(XXH3_128bits(bytes.data(), bytes.size()));
}

ContentHash HashOf(absl::string_view text) {
  return FromXxh(XXH3_128bits(text.data(), text.size()));
}

std::string HexOf(const ContentHash& hash) {
  return absl::StrCat(absl::Hex(hash.high, absl::kZeroPad16),
                      absl::Hex(hash.low, absl::kZeroPad16));
}

}  // namespace dsv4
