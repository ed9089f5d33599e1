// SPDX-License-Identifier: Apache-2.0
// The tests that are linked with this one have the dot products of Highway's EMU128.
#include <string_view>

#include "kernels/cpu/dot.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

TEST_CASE("the dot products are those of EMU128") {
  REQUIRE(ActiveDotKernels().name == std::string_view("N_EMU128"));
}

}  // namespace
}  // namespace dsv4::test
