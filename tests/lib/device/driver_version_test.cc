// SPDX-License-Identifier: Apache-2.0
// The least drivers are those of NVIDIA's release notes: 580 for CUDA 13.0, 570 for CUDA 12.8.
#include "lib/device/driver_version.h"

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("a driver that is too old is named with the least one") {
  CHECK(DriverTooOld("570.86.15\n", 12080, 13000) ==
        "driver 570.86.15 found, 580 or newer needed (CUDA 13.0)");
  CHECK(DriverTooOld("", 12080, 13000) ==
        "driver of CUDA 12.8 found, 580 or newer needed (CUDA 13.0)");
  CHECK(DriverTooOld("", 0, 12090) == "no NVIDIA driver found, 570 or newer needed (CUDA 12.9)");
}

}  // namespace
}  // namespace dsv4
