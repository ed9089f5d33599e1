// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recorded_passes.h"

#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("steps are padded to powers of two, and to halves and quarters between them") {
  std::vector<int32_t> sizes;
  for (int32_t rows = 0; rows < 4096;) sizes.push_back(rows = NextStepSize(rows));
  REQUIRE(sizes == std::vector<int32_t>{1,    2,    3,    4,    6,    8,    12,   16,  24,  32,
                                        40,   48,   56,   64,   80,   96,   112,  128, 160, 192,
                                        224,  256,  320,  384,  448,  512,  640,  768, 896, 1024,
                                        1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096});
}

// A limit may be any number: the next size is one of those all the same.
TEST_CASE("the size after any number of rows is the least above it") {
  REQUIRE(NextStepSize(5) == 6);
  REQUIRE(NextStepSize(7) == 8);
  REQUIRE(NextStepSize(31) == 32);
  REQUIRE(NextStepSize(33) == 40);
  REQUIRE(NextStepSize(80) == 96);
  REQUIRE(NextStepSize(95) == 96);
  REQUIRE(NextStepSize(100) == 112);
  REQUIRE(NextStepSize(65536 + 24) == 81920);
}

}  // namespace
}  // namespace dsv4
