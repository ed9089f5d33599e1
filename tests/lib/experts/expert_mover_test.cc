// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_mover.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kMatrix = 256;  // bytes: 192 of elements, 64 of scales
constexpr int64_t kScales = 192;

// Copies when it is told to, as late as a device may.
class LateDevice final : public test::FarDevice {
 public:
  absl::Status StartCopies(absl::Span<const MemoryCopy> copies) override {
    pending.assign(copies.begin(), copies.end());
    return absl::OkStatus();
  }
  absl::StatusOr<bool> CopiesDone() override { return pending.empty(); }
  void MakeCopies() {
    for (const MemoryCopy& copy : pending) std::memcpy(copy.to, copy.from, copy.bytes);
    pending.clear();
  }
  std::vector<MemoryCopy> pending;
};

uint8_t Pattern(ExpertId id, int matrix) {
  return static_cast<uint8_t>(id.block * 64 + id.expert * 3 + matrix + 1);
}

// Two blocks of eight experts, six in all on the device.
const ResidencyPlan kAlike{
    .blocks = 2, .experts = 8, .on_device = 6, .on_host = 10, .spare = 2, .expert_bytes = 1};

// The second block's w2 has twice the bytes.
ResidencyPlan Mixed() {
  ResidencyPlan plan = kAlike;
  plan.classes = {{.blocks = 1, .bytes = 3 * kMatrix, .spare = 1},
                  {.blocks = 1, .bytes = 4 * kMatrix, .spare = 1}};
  plan.class_of = {0, 1};
  return plan;
}

RankBytes SizesOf(const ResidencyPlan& plan) {
  RankBytes bytes{.matrices = {kMatrix, kMatrix, kMatrix}};
  if (plan.class_count() == 1) return bytes;
  bytes.blocks = {bytes.matrices, {kMatrix, kMatrix, 2 * kMatrix}};
  return bytes;
}

struct Layers {
  explicit Layers(uint64_t shuffle = 0, const ResidencyPlan& planned = kAlike)
      : plan(planned),
        sizes(SizesOf(plan)),
        device_memory(static_cast<size_t>(ExpertSlots::DeviceBytes(plan, sizes))),
        host_memory(static_cast<size_t>(ExpertSlots::HostBytes(plan, sizes))),
        slots(plan, sizes, &device, device_memory.data(), {host_memory.data()}),
        experts(16),
        table(16),
        counts(16),
        use(2, 8, {}) {
    for (int32_t index = 0; index < 16; ++index) {
      const ExpertId id{index / 8, index % 8};
      ExpertMatrix* const matrices[] = {&experts[index].w1, &experts[index].w3, &experts[index].w2};
      for (int matrix = 0; matrix < 3; ++matrix) {
        std::byte* const at = slots.At(id.block, slots.SlotOf(id), matrix);
        std::memset(at, Pattern(id, matrix), Bytes(id, matrix));
        const auto* data = reinterpret_cast<const uint8_t*>(at);
        *matrices[matrix] = Fp4Weight{data, data + kScales, 1, 1};
      }
    }
    table = experts;
    slots.set_blocks({{experts.data(), reinterpret_cast<std::byte*>(table.data())},
                      {experts.data() + 8, reinterpret_cast<std::byte*>(table.data() + 8)}});
    mover = std::make_unique<ExpertMover>(shuffle, &slots, counts.data(), &use, true);
  }

  // A pass that reads `chosen`, and finds all experts whole in the table that kernels read.
  void Pass(const std::vector<int>& chosen) {
    for (const int index : chosen) ++counts[index].calls;
    REQUIRE_OK(mover->BetweenPasses());
    for (int32_t index = 0; index < 16; ++index) {
      const ExpertId id{index / 8, index % 8};
      const ExpertMatrix* const matrices[] = {&table[index].w1, &table[index].w3, &table[index].w2};
      for (int matrix = 0; matrix < 3; ++matrix) {
        const uint8_t* const data = matrices[matrix]->data;
        REQUIRE(matrices[matrix]->scale == data + kScales);
        const auto bytes = static_cast<int64_t>(Bytes(id, matrix));
        REQUIRE(std::count(data, data + bytes, Pattern(id, matrix)) == bytes);
      }
    }
  }

  size_t Bytes(ExpertId id, int matrix) const {
    return static_cast<size_t>(sizes.Matrices(id.block)[static_cast<size_t>(matrix)]);
  }

  int OnDevice() const {
    int count = 0;
    for (int32_t index = 0; index < 16; ++index) count += slots.OnDevice({index / 8, index % 8});
    return count;
  }

  const ResidencyPlan plan;
  const RankBytes sizes;
  std::vector<std::byte> device_memory, host_memory;
  ExpertSlots slots;
  std::vector<ExpertWeights> experts, table;  // the host's; what kernels read
  std::vector<ExpertCounts> counts;
  ExpertUse use;
  LateDevice device;
  std::unique_ptr<ExpertMover> mover;
};

TEST_CASE("the experts that passes choose most come to the device, whole at every pass") {
  Layers layers;
  for (int pass = 0; pass < 400; ++pass) {
    layers.Pass({4, 5, 6, 12, 13, 14});
    if (pass % 3 == 0) layers.device.MakeCopies();
  }
  layers.device.MakeCopies();
  layers.Pass({});
  layers.Pass({});
  for (const int32_t index : {4, 5, 6, 12, 13, 14}) {
    REQUIRE(layers.slots.OnDevice({index / 8, index % 8}));
  }
  REQUIRE(layers.OnDevice() == 6);
  const ExpertTraffic traffic = layers.mover->traffic();
  REQUIRE(traffic.moved == 6);
  REQUIRE(traffic.device_reads + traffic.host_reads <= 6 * 400);
  REQUIRE(traffic.device_reads > 4 * traffic.host_reads);
}

TEST_CASE("experts that are chosen about alike stay where they are") {
  Layers layers;
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int pass = 0; pass < 200; ++pass) {
    layers.Pass(pass % 7 == 0 ? std::vector<int>{4, 12} : all);
    layers.device.MakeCopies();
  }
  REQUIRE(layers.mover->traffic().moved == 0);
}

TEST_CASE("no copy begins while earlier ones are under way") {
  Layers layers;
  for (int pass = 0; pass < 100; ++pass) layers.Pass({7, 15});
  REQUIRE(layers.device.pending.size() == 2);
  REQUIRE_FALSE(layers.slots.OnDevice({0, 7}));
  layers.device.MakeCopies();
  layers.Pass({});
  REQUIRE(layers.slots.OnDevice({0, 7}));
}

TEST_CASE("experts that move at random stay whole") {
  Layers layers(3);
  for (int pass = 0; pass < 300; ++pass) {
    layers.Pass({pass % 16});
    if (pass % 2 == 0) layers.device.MakeCopies();
  }
  REQUIRE(layers.mover->traffic().moved > 50);
  REQUIRE(layers.OnDevice() >= 6);
}

TEST_CASE("experts of different sizes change places with those of their own") {
  Layers layers(3, Mixed());
  for (int pass = 0; pass < 300; ++pass) {
    layers.Pass({pass % 16});
    if (pass % 2 == 0) layers.device.MakeCopies();
    // Of each block three, and the one that just came.
    for (const int32_t block : {0, 1}) {
      int on_device = 0;
      for (int32_t expert = 0; expert < 8; ++expert) {
        on_device += layers.slots.OnDevice({block, expert});
      }
      REQUIRE(on_device >= 3);
      REQUIRE(on_device <= 4);
    }
  }
  REQUIRE(layers.mover->traffic().moved > 50);

  // The hottest of each come, though one block has all of the hottest.
  Layers hot(0, Mixed());
  for (int pass = 0; pass < 400; ++pass) {
    hot.Pass(pass % 2 == 0 ? std::vector<int>{4, 5, 6, 7, 13} : std::vector<int>{4, 5, 6, 7});
    hot.device.MakeCopies();
  }
  int first = 0;
  for (const int32_t expert : {4, 5, 6, 7}) first += hot.slots.OnDevice({0, expert});
  REQUIRE(first == 3);
  REQUIRE(hot.slots.OnDevice({1, 5}));
  const ExpertTraffic traffic = hot.mover->traffic();
  REQUIRE(traffic.moved == 4);
  REQUIRE(traffic.device_bytes > traffic.device_reads * 3 * kMatrix);
  REQUIRE(traffic.device_bytes < traffic.device_reads * 4 * kMatrix);
  REQUIRE(traffic.host_bytes >= traffic.host_reads * 3 * kMatrix);
}

}  // namespace
}  // namespace dsv4
