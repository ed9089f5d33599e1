// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_residency.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

// 4 blocks of 64 experts of 30 bytes; 1000 bytes are others, 50 count, reads take 200 of the host
// and 70 of the device.
const RankBytes kRank{
    .other = 1000, .counts = 50, .stage = 200, .pack = 70, .matrices = {10, 10, 10}};

absl::StatusOr<ResidencyPlan> Plan(const ExpertBudgets& budgets) {
  return PlanResidency(budgets, 4, 64, {&kRank, 1});
}

ResidencyPlan MustPlan(const ExpertBudgets& budgets) {
  const absl::StatusOr<ResidencyPlan> plan = Plan(budgets);
  REQUIRE_OK(plan);
  return *plan;
}

TEST_CASE("mapped experts stay in memory as far as a budget or the machine has room") {
  const ResidencyPlan plan = PlanMappedExperts(11 * 30 - 1, 64, {30, 30, 30, 30});
  REQUIRE(plan.on_device == 0);
  REQUIRE(plan.on_host == 10);
  REQUIRE(plan.on_disk == 246);
  REQUIRE(plan.TierOf({.block = 1, .expert = 2}) == ExpertTier::kHost);  // the tenth
  REQUIRE(plan.TierOf({.block = 2, .expert = 2}) == ExpertTier::kDisk);
  REQUIRE(PlanMappedExperts(1'000'000, 64, {30, 30, 30, 30}).on_disk == 0);
  // Experts of different sizes: two of each block, and one of the first two.
  const ResidencyPlan mixed = PlanMappedExperts(2 * 140 + 70 + 29, 64, {40, 30, 30, 40});
  REQUIRE(mixed.on_host == 10);
  REQUIRE(mixed.host_bytes() == 2 * 140 + 70);
  REQUIRE(mixed.disk_bytes() == 62 * 140 - 70);
  REQUIRE(mixed.expert_bytes == 35);
  REQUIRE(mixed.ExpertBytes(2) == 30);
  REQUIRE(MappedExpertRoom(8000, 1000) == 6000);
  REQUIRE(MappedExpertRoom(800, 1000) == 0);
}

TEST_CASE("experts lie on the device, then on the host, then on disk") {
  REQUIRE(MustPlan({}).on_device == 256);
  REQUIRE(MustPlan({.device_bytes = 1000 + 256 * 30}).on_device == 256);
  // 100 slots, 8 of them spare and an eighth of the others, an even number, to stream through.
  const ResidencyPlan two = MustPlan({.device_bytes = 1050 + 100 * 30 + 29});
  REQUIRE(two.streams == 10);
  REQUIRE(two.on_device == 82);
  REQUIRE(two.on_host == 174);
  REQUIRE(two.on_disk == 0);
  REQUIRE(two.device_slots() == 100);
  REQUIRE(two.host_bytes() == 174 * 30);
  // A host that has no room for those on disk, or that streaming takes from the device.
  const ResidencyPlan full = MustPlan({.device_bytes = 1050 + 100 * 30, .host_bytes = 164 * 30});
  REQUIRE(full.on_disk == 0);
  REQUIRE(full.streams == 0);
  REQUIRE(full.on_device == 92);
  // The same for each of several ranks, which together have twice the bytes.
  const RankBytes both[] = {kRank, kRank};
  const auto shared = PlanResidency({.device_bytes = 1050 + 100 * 30}, 4, 64, both);
  REQUIRE_OK(shared);
  REQUIRE(shared->streams == 10);
  REQUIRE(shared->on_device == 82);
  REQUIRE(shared->host_bytes() == 174 * 60);
  // A host with room for 20 experts, and 100 slots: 8 spare, 23 of the others for guests and 10 to
  // stream through.
  const ResidencyPlan three =
      MustPlan({.device_bytes = 1050 + 70 + 100 * 30, .host_bytes = 200 + 20 * 30 + 29});
  REQUIRE(three.spare == 8);
  REQUIRE(three.guests == 23);
  REQUIRE(three.streams == 10);
  REQUIRE(three.on_device == 59);
  REQUIRE(three.on_host == 20);
  REQUIRE(three.on_disk == 177);
  REQUIRE(three.host_bytes() == 200 + 20 * 30);
  // 59 and 79 over four blocks.
  REQUIRE(three.OnDevice(0) == 15);
  REQUIRE(three.OnDevice(3) == 14);
  REQUIRE(three.OnDisk(0) == 64 - 20);
  REQUIRE(three.OnDisk(3) == 64 - 19);
  // A host with none, and as few slots as do.
  const ResidencyPlan disk = MustPlan({.device_bytes = 1050 + 70 + 12 * 30, .host_bytes = 200});
  REQUIRE(disk.spare == 0);
  REQUIRE(disk.guests == 8);
  REQUIRE(disk.on_device == 4);
  REQUIRE(disk.on_disk == 252);
}

TEST_CASE("an integrated GPU has experts once, and others on disk") {
  const auto plan_of = [](const ExpertBudgets& budgets) {
    return PlanResidency(budgets, 4, 64, {&kRank, 1}, true);
  };
  const auto all = plan_of({.device_bytes = 1000 + 256 * 30});
  REQUIRE_OK(all);
  REQUIRE(all->on_device == 256);
  // Reads take their 200 bytes of the same budget, which leaves 100 slots, 25 of them for guests.
  const auto some = plan_of({.device_bytes = 1050 + 200 + 70 + 100 * 30 + 29});
  REQUIRE_OK(some);
  REQUIRE(some->guests == 25);
  REQUIRE(some->on_device == 75);
  REQUIRE(some->on_host == 0);
  REQUIRE(some->on_disk == 181);
  REQUIRE(some->device_slots() == 100);
  REQUIRE(some->host_bytes() == 200);
  const int64_t least = 1050 + 200 + 70 + 12 * 30;
  REQUIRE(plan_of({.device_bytes = least})->on_device == 4);
  REQUIRE(plan_of({.least = true})->on_device == 4);
  const absl::Status refused = plan_of({.device_bytes = least - 1}).status();
  REQUIRE(absl::IsInvalidArgument(refused));
  REQUIRE_THAT(std::string(refused.message()),
               Catch::Contains("option device_weight_bytes") && Catch::Contains("at least 1680"));
  // A limit of host memory is one of experts and reads; the lower limit counts.
  REQUIRE(plan_of({.device_bytes = least, .host_bytes = 5000})->on_device == 4);
  REQUIRE(plan_of({.device_bytes = 50000, .host_bytes = 270 + 100 * 30})->on_device == 75);
  REQUIRE(plan_of({.host_bytes = 270 + 100 * 30})->on_disk == 181);
  REQUIRE(plan_of({.host_bytes = 270 + 12 * 30})->on_device == 4);
  const absl::Status few = plan_of({.host_bytes = 270 + 12 * 30 - 1}).status();
  REQUIRE(absl::IsInvalidArgument(few));
  REQUIRE_THAT(std::string(few.message()), Catch::Contains("option host_weight_bytes = 629") &&
                                               Catch::Contains("at least 1680"));
}

// A rank whose blocks have experts of 30, 32 and 50 bytes: w2 of the last one is of a larger type.
RankBytes MixedRank() {
  RankBytes rank = kRank;
  rank.matrices = {12, 10, 30};
  rank.blocks = {{10, 10, 10}, {12, 10, 10}, {10, 10, 10}, {10, 10, 30}};
  return rank;
}
constexpr int64_t kMixed = 30 + 32 + 30 + 50;  // bytes of one expert of each block

ResidencyPlan MustPlanMixed(const ExpertBudgets& budgets) {
  const RankBytes rank = MixedRank();
  const auto plan = PlanResidency(budgets, 4, 64, {&rank, 1});
  REQUIRE_OK(plan);
  return *plan;
}

// Finds all slots of a plan within their memory, and no two in one place: those of experts, with
// all matrices, and spare ones and guests of each class.
void ExpectSlots(const ResidencyPlan& plan, const RankBytes& rank) {
  std::vector<std::byte> device(static_cast<size_t>(ExpertSlots::DeviceBytes(plan, rank)));
  std::vector<std::byte> host(static_cast<size_t>(ExpertSlots::HostBytes(plan, rank)));
  REQUIRE(static_cast<int64_t>(device.size()) == plan.device_bytes());
  REQUIRE(static_cast<int64_t>(host.size()) == plan.host_expert_bytes());
  std::vector<std::byte*> pieces;
  std::byte* at = host.data();
  for (const int64_t bytes : ExpertSlots::HostPieces(plan, rank)) {
    pieces.push_back(at);
    at += bytes;
  }
  const ExpertSlots slots(plan, rank, nullptr, device.data(), pieces);
  std::vector<int> device_owners(device.size()), host_owners(host.size());
  const auto own = [&](bool on_host, const std::byte* from, int64_t size) {
    std::vector<int>& owners = on_host ? host_owners : device_owners;
    const int64_t at = from - (on_host ? host : device).data();
    REQUIRE(at >= 0);
    REQUIRE(at + size <= static_cast<int64_t>(owners.size()));
    for (int64_t i = at; i < at + size; ++i) ++owners[static_cast<size_t>(i)];
  };
  for (int32_t block = 0; block < plan.blocks; ++block) {
    for (int32_t expert = 0; expert < plan.experts; ++expert) {
      const int64_t slot = slots.SlotOf({block, expert});
      REQUIRE(slots.TierOf({block, expert}) == plan.TierOf({block, expert}));
      if (slot < 0) continue;
      for (int matrix = 0; matrix < 3; ++matrix) {
        own(plan.TierOf({block, expert}) == ExpertTier::kHost, slots.At(block, slot, matrix),
            rank.Matrices(block)[static_cast<size_t>(matrix)]);
      }
    }
  }
  for (int32_t i = 0; i < plan.class_count(); ++i) {
    const SlotClass slot_class = plan.ClassAt(i);
    for (int64_t j = 0; j < slot_class.spare; ++j) {
      own(false, slots.Slot(plan.spare_slot(i) + j), slot_class.bytes);
    }
    for (int64_t j = 0; j < slot_class.guests; ++j) {
      own(false, slots.Slot(plan.guest_slot(i) + j), slot_class.bytes);
    }
  }
  for (int64_t i = 0; i < plan.streams; ++i) {
    own(false, slots.Slot(plan.stream_slot() + i), plan.largest_bytes());
  }
  REQUIRE(std::count(device_owners.begin(), device_owners.end(), 1) ==
          static_cast<int64_t>(device.size()));
  REQUIRE(std::count(host_owners.begin(), host_owners.end(), 1) ==
          static_cast<int64_t>(host.size()));
}

TEST_CASE("experts that stay on the device take their own sizes") {
  const RankBytes rank = MixedRank();
  const int64_t all = 64 * kMixed;
  const ResidencyPlan whole = MustPlanMixed({.device_bytes = 1000 + all});
  REQUIRE(whole.IsWhole());
  REQUIRE(whole.expert_bytes == all / 256);
  REQUIRE(whole.device_bytes() == all);
  REQUIRE(MustPlanMixed({}).device_bytes() == all);
  ExpectSlots(whole, rank);
}

TEST_CASE("experts that move have slots of their own sizes, of each size a share") {
  const RankBytes rank = MixedRank();
  const int64_t all = 64 * kMixed;
  // One byte less than all take, and some are in host memory.
  const ResidencyPlan moving = MustPlanMixed({.device_bytes = 1000 + all - 1});
  REQUIRE_FALSE(moving.IsWhole());
  REQUIRE(moving.class_count() == 3);
  REQUIRE(moving.class_of == std::vector<int32_t>{0, 1, 0, 2});
  // Eight spare slots, by the blocks.
  REQUIRE(moving.ClassAt(0).blocks == 2);
  REQUIRE(moving.ClassAt(0).spare == 4);
  REQUIRE(moving.ClassAt(1).spare == 2);
  REQUIRE(moving.ClassAt(2).spare == 2);
  REQUIRE(moving.ClassAt(2).bytes == 50);
  REQUIRE(moving.spare_slot(1) == moving.on_device + 4);
  const int64_t spare = 4 * 30 + 2 * 32 + 2 * 50;
  // An eighth of the others, an even number of the largest size, to stream through.
  REQUIRE(moving.streams == 20);
  // 54 experts of each block, and one more of the first two.
  REQUIRE(moving.on_device == 54 * 4 + 2);
  REQUIRE(moving.device_bytes() == 54 * kMixed + 62 + spare + 20 * 50);
  REQUIRE(moving.on_host == 38);
  REQUIRE(moving.host_bytes() == 10 * kMixed - 62);
  REQUIRE(moving.expert_bytes == all / 256);
  ExpectSlots(moving, rank);

  // A host with room for less: its guests, at least as many of each size as a wave has experts.
  const ResidencyPlan tiers = MustPlanMixed(
      {.device_bytes = 1050 + 70 + 100 * 35, .host_bytes = 200 + 5 * kMixed + 30 + 31});
  REQUIRE(tiers.ClassAt(0).guests == 12);  // 22 are a quarter of what spare slots leave
  REQUIRE(tiers.ClassAt(1).guests == 5);
  REQUIRE(tiers.ClassAt(2).guests == 5);
  REQUIRE(tiers.guest_bytes() == 12 * 30 + 5 * 32 + 5 * 50);
  REQUIRE(tiers.guest_slot(2) == tiers.on_device + 8 + 17);
  REQUIRE(tiers.streams == 8);
  const int64_t left = 100 * 35 - tiers.device_bytes();
  REQUIRE(left >= 0);
  REQUIRE(left < 50);
  const int64_t host_left = 5 * kMixed + 61 - tiers.host_expert_bytes();
  REQUIRE(host_left >= 0);
  REQUIRE(host_left < 50);
  REQUIRE(tiers.host_expert_bytes() + tiers.disk_bytes() + tiers.device_bytes() - spare -
              tiers.guest_bytes() - 8 * 50 ==
          all);
  ExpectSlots(tiers, rank);

  // The least: one expert of each block, and slots of each size.
  const ResidencyPlan least = MustPlanMixed({.host_bytes = 200, .least = true});
  REQUIRE(least.on_device == 4);
  REQUIRE(least.guests == 4 + 4 + 4);
  REQUIRE(least.device_bytes() == kMixed + 4 * (30 + 32 + 50));
  ExpectSlots(least, rank);
  const int64_t bytes = 1050 + 70 + least.device_bytes();
  REQUIRE(MustPlanMixed({.device_bytes = bytes, .host_bytes = 200}).on_device == 4);
  const auto refused =
      PlanResidency({.device_bytes = bytes - 1, .host_bytes = 200}, 4, 64, {&rank, 1});
  REQUIRE(absl::IsInvalidArgument(refused.status()));
  REQUIRE_THAT(std::string(refused.status().message()),
               Catch::Contains("at least " + std::to_string(bytes)));
}

TEST_CASE("ranks with parts of different sizes have the same experts in the same places") {
  RankBytes ranks[] = {MixedRank(), MixedRank()};
  ranks[1].matrices = {6, 5, 15};
  ranks[1].blocks = {{5, 5, 5}, {6, 5, 5}, {5, 5, 5}, {5, 5, 15}};
  const auto plan = PlanResidency({.device_bytes = 1000 + 64 * kMixed - 1}, 4, 64, ranks);
  REQUIRE_OK(plan);
  const ResidencyPlan alone = MustPlanMixed({.device_bytes = 1000 + 64 * kMixed - 1});
  REQUIRE(plan->on_device == alone.on_device);
  REQUIRE(plan->streams == alone.streams);
  REQUIRE(plan->ClassAt(2).bytes == 75);
  REQUIRE(plan->host_bytes() ==
          ExpertSlots::HostBytes(*plan, ranks[0]) + ExpertSlots::HostBytes(*plan, ranks[1]));
  REQUIRE(plan->device_bytes() ==
          ExpertSlots::DeviceBytes(*plan, ranks[0]) + ExpertSlots::DeviceBytes(*plan, ranks[1]));
}

TEST_CASE("experts in host memory lie in pieces of whole experts where a budget says so") {
  ResidencyPlan plan = MustPlan({.device_bytes = 1050 + 100 * 30, .host_piece = 100});
  REQUIRE(plan.on_host == 174);
  REQUIRE(ExpertSlots::HostPieces(plan, kRank) == std::vector<int64_t>(58, 90));
  // Each piece stands for itself: the others may lie anywhere.
  std::vector<std::array<std::byte, 90>> memory(2 * 58);
  std::vector<std::byte*> pieces;
  for (size_t i = 0; i < 58; ++i) pieces.push_back(memory[115 - 2 * i].data());
  std::vector<std::byte> device(static_cast<size_t>(ExpertSlots::DeviceBytes(plan, kRank)));
  const ExpertSlots slots(plan, kRank, nullptr, device.data(), pieces);
  std::set<const std::byte*> places;
  for (int64_t place = plan.on_device; place < plan.on_device + plan.on_host; ++place) {
    const ExpertId id{static_cast<int32_t>(place % 4), static_cast<int32_t>(place / 4)};
    const std::byte* const begin = slots.At(id.block, slots.SlotOf(id), 0);
    places.insert(begin);
    bool inside = false;
    for (const std::byte* piece : pieces) inside |= piece <= begin && begin + 30 <= piece + 90;
    REQUIRE(inside);
  }
  REQUIRE(places.size() == 174);
  plan.host_piece = 20;  // less than one
  REQUIRE(ExpertSlots::HostPieces(plan, kRank) == std::vector<int64_t>(174, 30));
  plan.host_piece = 0;
  REQUIRE(ExpertSlots::HostPieces(plan, kRank) == std::vector<int64_t>{174 * 30});
}

TEST_CASE("slots follow the plan, and experts on disk have none") {
  const ResidencyPlan plan =
      MustPlan({.device_bytes = 1050 + 70 + 100 * 30, .host_bytes = 200 + 20 * 30});
  std::byte memory[1];
  const ExpertSlots slots(plan, kRank, nullptr, memory, {memory});
  int64_t tiers[3] = {};
  for (int32_t block = 0; block < 4; ++block) {
    for (int32_t expert = 0; expert < 64; ++expert) {
      ++tiers[static_cast<int>(slots.TierOf({block, expert}))];
      REQUIRE((slots.SlotOf({block, expert}) < 0) ==
              (slots.TierOf({block, expert}) == ExpertTier::kDisk));
    }
  }
  REQUIRE(tiers[0] == plan.on_device);
  REQUIRE(tiers[1] == plan.on_host);
  REQUIRE(tiers[2] == plan.on_disk);
  REQUIRE(slots.SlotOf({0, 0}) == 0);
  REQUIRE(slots.SlotOf({3, 14}) == plan.device_slots());
}

TEST_CASE("budgets below the least are refused with it") {
  const auto refused = [](const ExpertBudgets& budgets, const std::string& option, int64_t least) {
    const absl::Status status = Plan(budgets).status();
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE_THAT(std::string(status.message()),
                 Catch::Contains("option " + option) &&
                     Catch::Contains("at least " + std::to_string(least)));
  };
  refused({.device_bytes = 1050 + 12 * 30 - 1}, "device_weight_bytes", 1050 + 12 * 30);
  refused({.device_bytes = 1050 + 70 + 12 * 30 - 1, .host_bytes = 200}, "device_weight_bytes",
          1050 + 70 + 12 * 30);
  refused({.device_bytes = 1050 + 70 + 20 * 30 - 1, .host_bytes = 230}, "device_weight_bytes",
          1050 + 70 + 20 * 30);
  refused({.device_bytes = 1050 + 70 + 20 * 30, .host_bytes = 199}, "host_weight_bytes", 200);
}

TEST_CASE("no more memory is pinned than the machine has") {
  const ResidencyPlan plan = MustPlan({.device_bytes = 1050 + 100 * 30});
  REQUIRE_OK(ExpectHostRoom(plan, 1, 1, std::nullopt));
  REQUIRE_OK(ExpectHostRoom(plan, 1, 1, 174 * 30));
  REQUIRE_OK(ExpectHostRoom(plan, 1, 2, 87 * 30));
  const absl::Status status = ExpectHostRoom(plan, 1, 1, 174 * 30 - 1);
  REQUIRE(IsOutOfHostMemory(status));
  REQUIRE_THAT(std::string(status.message()), Catch::Contains("5219 bytes") &&
                                                  Catch::Contains("5220") &&
                                                  Catch::Contains("host_weight_bytes"));
}

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
    TimedDevice device(host_memory, device_memory.data() + plan.on_device * slot,
                       device_memory.data() + device_memory.size());
    const ExpertSlots slots(plan, {.matrices = {kMatrix, kMatrix, kMatrix}}, &device,
                            device_memory.data(), {host_memory.data()});
    const absl::StatusOr<ExpertReadTimes> times = MeasureExpertReads(slots);
    REQUIRE_OK(times);
    REQUIRE(times->host == (plan.on_host > 0 ? kFromHost : 0));
    // A copy within the device writes as much as it reads.
    REQUIRE(times->device == kWithin / 2);
  }
}

}  // namespace
}  // namespace dsv4
