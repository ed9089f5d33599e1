// SPDX-License-Identifier: Apache-2.0
// What benchmarks learn of launches: a recorder runs each itself and is told its cost, which
// nothing of the device's memory is read for.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "kernels/op/moe.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "tests/kernels/fake_kernels.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

// Launches nothing until it is asked to.
class HeldLaunches final : public LaunchRecorder {
 public:
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    name = entry.name;
    of = params;
    last = cost;
    launched_before = last_launch.entry;
    launch();
  }
  std::string name, launched_before;
  const void* of = nullptr;
  Cost last;
};

TEST_CASE("a recorder has the entry, its cost and the launch") {
  static uint8_t weight;
  static uint16_t x, y;
  LinearFp8Params params;
  params.rows = 3;
  params.k = 4096;
  params.x = &x;
  params.part_count = 1;
  params.parts[0] = {{&weight, &weight, 1024, 4096}, &y};
  Dispatch dispatch(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(120, 170));
  REQUIRE_OK(dispatch.Prepare(params));
  HeldLaunches recorder;
  dispatch.set_recorder(&recorder);
  REQUIRE(dispatch.recording());
  last_launch = {};
  CpuStream stream(1);
  LaunchContext context;
  context.stream = &stream;
  REQUIRE_OK(dispatch.Run(context, params));
  CHECK(recorder.name == "sm12x.wide");
  CHECK(recorder.of == &params);
  CHECK(recorder.launched_before.empty());
  CHECK(std::string(last_launch.entry) == "sm12x.wide");
  CHECK(last_launch.multiprocessors == 170);
  CHECK(recorder.last.flops == int64_t{2} * 3 * 1024 * 4096);
}

TEST_CASE("experts cost the weights of as many as so many rows choose") {
  ExpertFfnParams params;
  params.hidden = 4096;
  params.inter = 2048;
  params.expert_count = 256;
  params.experts_per_token = 6;
  params.experts = reinterpret_cast<const int32_t*>(8);  // not the host's
  // Of one expert: 3 x 4096 x 2048 values of 4 bits, and a byte for each 32. The shared one: a byte
  // each, and one for each 128 x 128. Rows: read and written as bf16.
  constexpr int64_t kExpert = 12582912 + 786432, kShared = 25165824 + 1536, kRow = 16384;
  const auto experts = [&](int32_t rows) {
    params.rows = rows;
    return static_cast<double>(CostOf(params).bytes - kShared - rows * kRow) / kExpert;
  };
  CHECK(experts(1) == 6);
  // 256 (1 - (250 / 256)^T).
  CHECK(experts(8) == Approx(44.2418).margin(1e-3));
  CHECK(experts(64) == Approx(199.8897).margin(1e-3));
  CHECK(experts(4096) == Approx(256).margin(0.001));
}

TEST_CASE("a device tells how long what was enqueued ran") {
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open({.threads = 1});
  REQUIRE_OK(device);
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> inside{};
  const auto begin = Clock::now();
  const double seconds = (*device)->SecondsOf([&] {
    const auto enqueued = Clock::now();
    while (inside.count() == 0) inside = Clock::now() - enqueued;
  });
  const std::chrono::duration<double> around = Clock::now() - begin;
  CHECK(seconds >= inside.count());
  CHECK(seconds <= around.count());
}

}  // namespace
}  // namespace dsv4::test
