// SPDX-License-Identifier: Apache-2.0
#include "lib/model/step_sizes.h"

#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("steps are padded to powers of two and what lies half way between them") {
  std::vector<int32_t> sizes;
  for (int32_t rows = 0; rows < 4096;) sizes.push_back(rows = NextStepSize(rows));
  REQUIRE(sizes == std::vector<int32_t>{1,   2,   3,   4,    6,    8,    12,   16,
                                        24,  32,  48,  64,   96,   128,  192,  256,
                                        384, 512, 768, 1024, 1536, 2048, 3072, 4096});
}

// A limit may be any number: the next size is one of those all the same.
TEST_CASE("the size after any number of rows is the least above it") {
  REQUIRE(NextStepSize(5) == 6);
  REQUIRE(NextStepSize(7) == 8);
  REQUIRE(NextStepSize(80) == 96);
  REQUIRE(NextStepSize(95) == 96);
  REQUIRE(NextStepSize(100) == 128);
  REQUIRE(NextStepSize(65536 + 24) == 98304);
}

}  // namespace
}  // namespace dsv4
