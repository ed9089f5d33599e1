// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cpu_device.h"

#include <atomic>
#include <fstream>
#include <latch>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/sleeping_threads.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

TEST_CASE("ParallelFor runs every unit once, with a worker of its own") {
  for (const int threads : {1, 2, 3, 8}) {
    CpuStream stream(threads);
    REQUIRE(stream.threads() == threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      std::vector<std::atomic<int>> busy(static_cast<size_t>(threads));
      std::atomic<bool> shared_worker{false};
      stream.ParallelFor(count, [&](int64_t unit, int worker) {
        if (busy[worker].fetch_add(1) != 0) shared_worker = true;
        ++runs[unit];
        busy[worker].fetch_sub(1);
      });
      REQUIRE_FALSE(shared_worker);
      const std::vector<int> times(runs.begin(), runs.end());
      REQUIRE(test::DifferentBits(times, std::vector<int>(times.size(), 1)) == "");
    }
  }
}

TEST_CASE("what the units wrote is there when ParallelFor returns, job after job") {
  CpuStream stream(4);
  std::vector<int64_t> values(64);
  for (int64_t round = 1; round <= 20000; ++round) {
    stream.ParallelFor(64, [&](int64_t unit, int) { values[unit] = round + unit; });
    int64_t sum = 0;
    for (const int64_t value : values) sum += value;
    REQUIRE(sum == 64 * round + 63 * 64 / 2);
  }
}

TEST_CASE("workers that went to sleep wake for the next job") {
  CpuStream stream(3);
  for (int round = 0; round < 5; ++round) {
    test::AwaitSleepOfOthers();
    // A unit waits for the others, so the caller alone would never return.
    std::latch all_run(3);
    stream.ParallelFor(3, [&](int64_t, int) { all_run.arrive_and_wait(); });
  }
}

// As the system tells it; "cpu" where it does not.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t begin = line.find_first_not_of(": \t", line.find(':'));
    return line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  }
  return "cpu";
}

TEST_CASE("a device is opened with the threads asked for, or refused by name") {
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open({.threads = 3});
  REQUIRE_OK(device);
  REQUIRE((*device)->threads() == 3);
  REQUIRE((*device)->name() == ProcessorName());
  REQUIRE(Device::Open({}).value()->threads() >= 1);
  REQUIRE_FAILS(Device::Open({.threads = 257}), absl::StatusCode::kInvalidArgument, "threads 257");
  REQUIRE_FAILS(Device::Open({.threads = -1}), absl::StatusCode::kInvalidArgument, "threads -1");
  REQUIRE_FAILS(Device::Open({.index = 1}), absl::StatusCode::kInvalidArgument, "cpu:1");
}

#ifndef DSV4_HAVE_CUDA
TEST_CASE("a build without CUDA says what a GPU needs") {
  const char* const needs = "install the CUDA toolkit 13 (with nvcc) and build dsv4 again";
  REQUIRE_FAILS(Device::Open({.kind = DeviceKind::kCuda}), absl::StatusCode::kUnimplemented, needs);
  const std::vector<DeviceListing> gpus = Device::ListGpus();
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].index == -1);
  CHECK(gpus[0].reason.find(needs) != std::string::npos);
}
#endif

TEST_CASE("a buffer is zero, aligned, movable; an impossible one is refused with its purpose") {
  absl::StatusOr<Buffer> buffer = Buffer::AllocateHost(1000, "test rows");
  REQUIRE_OK(buffer);
  REQUIRE(buffer->size_bytes() == 1000);
  REQUIRE(reinterpret_cast<uintptr_t>(buffer->data()) % 64 == 0);
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(buffer->data()), 1000);
  REQUIRE(test::DifferentBits(bytes, std::vector<uint8_t>(1000)) == "");
  const Buffer moved = *std::move(buffer);
  REQUIRE(moved.size_bytes() == 1000);
  REQUIRE_FAILS(Buffer::AllocateHost(int64_t{1} << 62, "key/value cache"),
                absl::StatusCode::kResourceExhausted, "key/value cache");
}

}  // namespace
}  // namespace dsv4
