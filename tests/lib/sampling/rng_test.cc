// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/rng.h"

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using Counter = std::array<uint32_t, 4>;

// The three philox4x32 vectors with 10 rounds of tests/kat_vectors of Random123 (D. E. Shaw
// Research).
TEST_CASE("Philox4x32-10 gives the published known answers") {
  REQUIRE(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
          Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
          Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Uniform takes the top 53 bits of the first two words") {
  // Counter and key 0: words 0x6627e8d5 and 0xe169c58d, so 0xe169c58d6627e8d5 >> 11.
  REQUIRE(Uniform(0, 0) == static_cast<double>(0xe169c58d6627e8d5 >> 11) / 9007199254740992.0);
}

TEST_CASE("Uniform counts by the position, under the seed as the key") {
  const Counter words = Philox4x32({7, 9, 0, 0}, {3, 5});
  const uint64_t bits = (uint64_t{words[1]} << 32 | words[0]) >> 11;
  REQUIRE(Uniform(uint64_t{5} << 32 | 3, uint64_t{9} << 32 | 7) ==
          static_cast<double>(bits) / 9007199254740992.0);
}

TEST_CASE("Uniform uses every bit of seed and position") {
  for (int bit = 0; bit < 64; ++bit) {
    CAPTURE(bit);
    REQUIRE(Uniform(uint64_t{1} << bit, 0) != Uniform(0, 0));
    REQUIRE(Uniform(0, uint64_t{1} << bit) != Uniform(0, 0));
  }
}

}  // namespace
}  // namespace dsv4
