// SPDX-License-Identifier: Apache-2.0
#include "lib/io/content_hash.h"

#include <string>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// 1000 bytes: 0, 1, ..., 255, 0, ...
std::string Counting() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i));
  return text;
}

// Expected values: xxhsum -H2 of the xxHash project.
TEST_CASE("content hashes are XXH3's of 128 bits") {
  REQUIRE(HashOf(absl::string_view()) ==
          ContentHash{.low = 0x6001c324468d497f, .high = 0x99aa06d3014798d8});
  REQUIRE(HashOf(Bytes("dsv4")) ==
          ContentHash{.low = 0x67d5da5414d0dacc, .high = 0xaaaa6355078e3c44});
  REQUIRE(HashOf(Bytes(Counting())) ==
          ContentHash{.low = 0xd33dd80b46f60e50, .high = 0x076f7e02b7120d2a});
}

TEST_CASE("a content hash is written as xxhsum writes it") {
  REQUIRE(HexOf(HashOf(absl::string_view())) == "99aa06d3014798d86001c324468d497f");
  REQUIRE(HexOf({.low = 0xa, .high = 1}) == "0000000000000001000000000000000a");
}

TEST_CASE("a content hash does not depend on the pieces") {
  const std::string text = Counting();
  for (size_t cut = 0; cut <= text.size(); cut += 37) {
    ContentHasher hasher;
    hasher.Add(absl::string_view(text).substr(0, cut));
    hasher.Add(Bytes(text.substr(cut)));
    REQUIRE(hasher.hash() == HashOf(Bytes(text)));
  }
}

}  // namespace
}  // namespace dsv4
