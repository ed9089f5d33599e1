// SPDX-License-Identifier: Apache-2.0
// Rates that are measured replace table values, and what cannot be measured keeps them.
#include "lib/engine/measured_rates.h"

#include <fstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

TEST_CASE("the CPU's rate is the memory's or that of its threads, whichever is lower") {
  const DeviceRates table = RatesOf(Backend::kCpu, {}, false, 2);
  REQUIRE(table.memory == Approx(26e9));
  const DeviceRates slow = WithMeasured(table, Backend::kCpu, {.memory = 20e9});
  CHECK(slow.memory == Approx(20e9));
  CHECK(slow.host == Approx(20e9));
  CHECK(slow.layer_seconds == Approx(table.layer_seconds));
  // Memory that is faster than the threads compute does not help.
  CHECK(WithMeasured(table, Backend::kCpu, {.memory = 50e9}).memory == Approx(26e9));
}

TEST_CASE("link and disk replace the table's values, one by one") {
  const DeviceRates table = RatesOf(Backend::kCuda, {.name = "H100"}, false, 1);
  const DeviceRates link = WithMeasured(table, Backend::kCuda, {.link = 25e9});
  CHECK(link.host == Approx(25e9));
  CHECK(link.disk == Approx(3e9));
  CHECK(link.memory == table.memory);
  const DeviceRates disk = WithMeasured(table, Backend::kCuda, {.disk = 1e9});
  CHECK(disk.host == Approx(50e9));
  CHECK(disk.disk == Approx(1e9));
}

TEST_CASE("the text names what was measured") {
  CHECK(TextOf({}).empty());
  CHECK(TextOf({.memory = 24.06e9}) == "rates measured at open: host memory 24.1 GB/s");
  CHECK(TextOf({.link = 52e9, .disk = 2.9e9}) ==
        "rates measured at open: link 52.0 GB/s, disk 2.9 GB/s");
}

TEST_CASE("host memory is measured once, the disk where experts are on it") {
  const auto device = Device::Open({.threads = 2});
  REQUIRE_OK(device);
  EngineInfo info{};
  info.backend = Backend::kCpu;
  const TokenWork work{.dense_bytes = 3e6, .expert_bytes = 2e6};
  const MeasuredRates first = MeasureRates(info, work, device->get(), {});
  // From a slow memory behind a sanitizer to a fast cache.
  REQUIRE(first.memory.has_value());
  CHECK(*first.memory > 1e7);
  CHECK(*first.memory < 1e13);
  CHECK_FALSE(first.link.has_value());
  CHECK_FALSE(first.disk.has_value());

  const test::TempFolder folder;
  const std::string large = folder.File("large"), small = folder.File("small");
  std::ofstream(large) << std::string(size_t{40} << 20, 'x');
  std::ofstream(small) << "x";
  info.residency.on_disk = 1;
  const MeasuredRates second = MeasureRates(info, work, device->get(), {small, large});
  CHECK(second.memory == first.memory);
  REQUIRE(second.disk.has_value());
  CHECK(*second.disk > 1e5);
  CHECK_FALSE(MeasureRates(info, work, device->get(), {small}).disk.has_value());
  CHECK_FALSE(MeasureRates(info, work, device->get(), {folder.File("none")}).disk.has_value());
  CHECK_FALSE(MeasureRates(info, work, device->get(), {}).disk.has_value());
}

}  // namespace
}  // namespace dsv4
