// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gpu_state.h"

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

constexpr DeviceTiming kRight{.device_seconds = 0.4, .host_seconds = 0.41};

GpuState Well() {
  return {.driver = "580.82.07",
          .cuda_version = 13000,
          .sm_mhz = 2400,
          .most_sm_mhz = 2600,
          .memory_mhz = 14001,
          .most_memory_mhz = 14001};
}

TEST_CASE("a device that is well has no findings, nor has one that says nothing") {
  const GpuState well = Well(), silent;
  CHECK(GpuFindings(&well, kRight).empty());
  CHECK(GpuFindings(&silent, kRight).empty());
  CHECK(GpuFindings(nullptr, kRight).empty());
}

TEST_CASE("stuck clocks are named") {
  GpuState state = Well();
  state.sm_mhz = 210;
  REQUIRE(GpuFindings(&state, kRight) ==
          std::vector<std::string>{
              "the SM clock is stuck at 210 of 2600 MHz while the device is busy"});
  state = Well();
  state.memory_mhz = 405;
  REQUIRE(GpuFindings(&state, kRight) ==
          std::vector<std::string>{
              "the memory clock is stuck at 405 of 14001 MHz while the device is busy"});
  REQUIRE(GpuFindings(nullptr, {.device_seconds = 0, .host_seconds = 0.5}) ==
          std::vector<std::string>{
              "the device's clock: 0.500 s pass for the host, 0.000 s for the device"});
}

TEST_CASE("slowdowns by the hardware and memory errors are findings, a power cap is none") {
  GpuState state = Well();
  state.throttle_reasons = 0x4;
  CHECK(GpuFindings(&state, kRight).empty());
  CHECK(ThrottleReasons(state.throttle_reasons) == "power cap");
  state.throttle_reasons = 0x4 | 0x40;
  CHECK(GpuFindings(&state, kRight) ==
        std::vector<std::string>{"throttled: thermal, by the hardware"});
  state = Well();
  state.uncorrected_errors = 3;
  CHECK(GpuFindings(&state, kRight) ==
        std::vector<std::string>{"3 uncorrected memory errors since the driver was loaded"});
  CHECK(ThrottleReasons(0) == "none");
}

}  // namespace
}  // namespace dsv4
