// SPDX-License-Identifier: Apache-2.0
// What a step's kernels find on a device with memory of its own, which here is other host memory.
#include "lib/model/step_upload.h"

#include <vector>

#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::FarDevice;

TEST_CASE("a step reaches the device whole, padded, and at the same places every time") {
  FarDevice device;
  const StepLimits limits{.rows = 8, .sequences = 4, .logit_rows = 2, .positions = 2048};
  auto memory = device.Allocate(StepUpload::DeviceBytes(device, limits), "test");
  REQUIRE_OK(memory);
  StepUpload upload;
  upload.Place(&device, limits, memory->data());
  const std::byte *begin = memory->data(), *end = begin + memory->size_bytes();
  const auto on_device = [&](const void* p) {
    return begin <= static_cast<const std::byte*>(p) && static_cast<const std::byte*>(p) < end;
  };

  // One token at position 1000, of whose window blocks 13, 14 and 15 are left, and two at 0.
  std::vector<int32_t> windows(16, -1), groups = {5, 6, 7, 8}, first_window = {40};
  windows[13] = 70, windows[14] = 71, windows[15] = 72;
  std::byte states[4];
  const StateSave late_save[] = {{1, states}}, first_saves[] = {{1, states + 1}, {2, states + 2}};
  const SequenceRows sequences[] = {
      {0, 1, 1000, windows.data(), groups.data(), 0, states, late_save, 1},
      {1, 2, 0, first_window.data(), groups.data(), 0, states + 3, first_saves, 2}};
  const int32_t sequence_of[] = {0, 1, 1}, ids[] = {11, 12, 13};
  const int64_t positions[] = {1000, 0, 1};
  const int64_t* first_positions = nullptr;
  for (int pass = 0; pass < 2; ++pass) {
    StepRows step{.rows = 3, .sequence_count = 2, .sequences = sequences};
    step.sequence_of = sequence_of;
    step.positions = positions;
    const int32_t* tokens = ids;
    const int64_t* rope_positions = positions;
    REQUIRE_OK(upload.Step(4, 3, &step, &tokens, &rope_positions));
    REQUIRE(step.rows == 4);
    REQUIRE(step.sequence_count == 3);
    for (const void* p :
         {static_cast<const void*>(step.sequences), static_cast<const void*>(tokens),
          static_cast<const void*>(step.positions), static_cast<const void*>(rope_positions)}) {
      REQUIRE(on_device(p));
    }
    CHECK(std::vector<int32_t>(tokens, tokens + 4) == std::vector<int32_t>{11, 12, 13, 0});
    CHECK(std::vector<int32_t>(step.sequence_of, step.sequence_of + 4) ==
          std::vector<int32_t>{0, 1, 1, -1});
    CHECK(std::vector<int64_t>(rope_positions, rope_positions + 4) ==
          std::vector<int64_t>{1000, 0, 1, 0});
    const SequenceRows& late = step.sequences[0];
    REQUIRE(on_device(late.window_blocks + 13));
    CHECK(late.window_blocks[873 / 64] == 70);  // the oldest row of its window
    CHECK(late.window_blocks[1000 / 64] == 72);
    CHECK(late.group_blocks[1000 / 256] == 8);
    CHECK(late.saves[0].state == states);
    CHECK(late.state_in == states);
    CHECK(step.sequences[1].window_blocks[0] == 40);
    CHECK(step.sequences[1].saves[1].row == 2);
    CHECK(step.sequences[2].rows == 0);
    CHECK(step.sequence(1).window_blocks == first_window.data());  // the host's
    if (pass == 0) first_positions = step.positions;
    CHECK(step.positions == first_positions);
  }

  const int32_t chosen[] = {2, 0};
  const int32_t* rows = chosen;
  REQUIRE_OK(upload.Rows(2, &rows));
  REQUIRE(on_device(rows));
  CHECK(rows[0] == 2);
  const std::byte* const sources[] = {states, states + 1};
  std::byte* const places[] = {states + 2, states + 3};
  const std::byte* const* from = sources;
  std::byte* const* to = places;
  REQUIRE_OK(upload.Pointers(2, &from, &to));
  REQUIRE(on_device(from));
  CHECK(from[1] == states + 1);
  CHECK(to[0] == states + 2);
}

}  // namespace
}  // namespace dsv4
