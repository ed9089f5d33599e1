// SPDX-License-Identifier: Apache-2.0
// A 128-bit hash of bytes (XXH3, by the xxHash library): tells different content apart and finds
// damage. It does not protect against content that was made to have a given hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dsv4 {

struct ContentHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ContentHash&) const = default;
};

// Hashes content that is added in pieces. The pieces may be cut anywhere.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Add(absl::Span<const uint8_t> bytes);
  void Add(absl::string_view text);
  ContentHash hash() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

ContentHash HashOf(absl::Span<const uint8_t> bytes);
ContentHash HashOf(absl::string_view text);

// 32 hexadecimal digits, as xxhsum prints them.
std::string HexOf(const ContentHash& hash);

}  // namespace dsv4
