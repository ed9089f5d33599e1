// SPDX-License-Identifier: Apache-2.0
#include "lib/model/expert_read_times.h"

#include <cstddef>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kMatrix = 64;               // bytes
constexpr double kFromHost = 8, kWithin = 2;  // seconds that a copy takes for a byte

// Copies by lanes take the time of what they read, and the first of each memory ten times as long.
class TimedDevice final : public test::FarDevice {
 public:
  TimedDevice(const std::vector<std::byte>& host, const std::byte* first_to,
              const std::byte* end_to)
      : host_(host), first_to_(first_to), end_to_(end_to) {}
  absl::Status StartLane(int, absl::Span<const MemoryCopy> copies) override {
    for (const MemoryCopy& copy : copies) {
      REQUIRE(copy.to >= first_to_);
      REQUIRE(copy.to + copy.bytes <= end_to_);
      const bool from_host =
          copy.from >= host_.data() && copy.from + copy.bytes <= host_.data() + host_.size();
      started_ += static_cast<double>(copy.bytes) * (from_host ? kFromHost : kWithin) *
                  (runs_ % 2 == 0 ? 10 : 1);
    }
    ++runs_;
    return absl::OkStatus();
  }
  absl::Status Synchronize() override {
    done_ = started_;
    return absl::OkStatus();
  }
  double LaneSeconds() override { return done_; }

 private:
  const std::vector<std::byte>& host_;
  const std::byte *first_to_, *end_to_;
  double started_ = 0, done_ = 0;
  int runs_ = 0;
};

TEST_CASE("reads of experts are estimated by copies from where they lie to empty slots") {
  const int64_t slot = 3 * kMatrix;
  // The others on the host, and then on disk.
  for (const ResidencyPlan& plan :
       {ResidencyPlan{.blocks = 2, .experts = 8, .on_device = 4, .on_host = 12, .spare = 2},
        ResidencyPlan{.blocks = 2, .experts = 8, .on_device = 4, .on_disk = 12, .guests = 9}}) {
    CAPTURE(plan.on_host);
    std::vector<std::byte> device_memory(static_cast<size_t>(plan.device_slots() * slot));
    std::vector<std::byte> host_memory(static_cast<size_t>(plan.on_host * slot));
    const ExpertSlots slots(plan, {.matrices = {kMatrix, kMatrix, kMatrix}}, device_memory.data(),
                            host_memory.data());
    TimedDevice device(host_memory, device_memory.data() + plan.on_device * slot,
                       device_memory.data() + device_memory.size());
    const absl::StatusOr<ExpertReadTimes> times = MeasureExpertReads(plan, slots, &device);
    REQUIRE_OK(times);
    REQUIRE(times->host == (plan.on_host > 0 ? static_cast<double>(slot) * kFromHost : 0));
    // A copy within the device writes as much as it reads.
    REQUIRE(times->device == static_cast<double>(slot) * kWithin / 2);
  }
}

}  // namespace
}  // namespace dsv4
