// SPDX-License-Identifier: Apache-2.0
// What a step's kernels find on a device with memory of its own, which here is other host memory.
#include "lib/model/step_upload.h"

#include <algorithm>
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
  const int64_t vocab = 40;
  const int64_t mask_bytes = TokenMasks::DeviceBytes(device, 2, vocab);
  auto memory = device.Allocate(mask_bytes + StepUpload::DeviceBytes(device, limits), "test");
  REQUIRE_OK(memory);
  TokenMasks masks;
  StepUpload upload;
  const uint32_t with_text[] = {0xfffffff0, 0x7f};
  REQUIRE_OK(masks.Place(&device, 2, vocab, memory->data(), with_text));
  REQUIRE_OK(upload.Place(&device, limits, &masks, memory->data() + mask_bytes));
  const std::byte *begin = memory->data(), *end = begin + memory->size_bytes();
  const auto on_device = [&](const void* p) {
    return begin <= static_cast<const std::byte*>(p) && static_cast<const std::byte*>(p) < end;
  };

  // One token at position 1000, of whose window blocks 13, 14 and 15 are left, and two at 0.
  std::vector<int32_t> windows(16, -1), compressed = {5, 6, 7, 8}, first_window = {40};
  windows[13] = 70, windows[14] = 71, windows[15] = 72;
  const StateWrite late_write[] = {{1, 20}}, first_writes[] = {{1, 21}, {2, 22}};
  const SequenceRows sequences[] = {
      {0, 1, 1000, windows.data(), compressed.data(), 0, 20, late_write, 1},
      {1, 2, 0, first_window.data(), compressed.data(), 0, 23, first_writes, 2}};
  const int32_t sequence_of[] = {0, 1, 1}, ids[] = {11, 12, 13};
  const int64_t positions[] = {1000, 0, 1};
  // Of the two rows of the head that there may be, one or both are wanted.
  const int32_t head_rows[] = {2, 0};
  const uint32_t allowed[] = {0xf0, 0x1};
  const LogitQuestion questions[] = {
      {.row = 0, .rule = {.top_k = 7}},
      {.row = 1, .rule = {.top_k = 8}, .allowed = allowed, .allowed_id = 1}};
  const PassInputs inputs{.step = {.rows = 3,
                                   .sequence_count = 2,
                                   .sequences = sequences,
                                   .sequence_of = sequence_of,
                                   .positions = positions},
                          .tokens = ids,
                          .rope_positions = positions};
  PassInputs first;
  for (const size_t wanted : {2, 1}) {
    PassInputs pass = inputs;
    const LogitRequests head{.rows = {head_rows, head_rows + wanted},
                             .questions = {questions + 2 - wanted, questions + 2}};
    REQUIRE_OK(upload.Pass({.rows = 4, .sequences = 3, .head_rows = 2}, head, &pass));
    const StepRows& step = pass.step;
    REQUIRE(step.rows == 4);
    REQUIRE(step.sequence_count == 3);
    for (const void* p :
         {static_cast<const void*>(step.sequences), static_cast<const void*>(pass.tokens),
          static_cast<const void*>(step.positions), static_cast<const void*>(pass.rope_positions),
          static_cast<const void*>(pass.head_rows), static_cast<const void*>(pass.queries)}) {
      REQUIRE(on_device(p));
    }
    CHECK(std::vector<int32_t>(pass.tokens, pass.tokens + 4) ==
          std::vector<int32_t>{11, 12, 13, 0});
    CHECK(std::vector<int32_t>(step.sequence_of, step.sequence_of + 4) ==
          std::vector<int32_t>{0, 1, 1, -1});
    CHECK(std::vector<int64_t>(pass.rope_positions, pass.rope_positions + 4) ==
          std::vector<int64_t>{1000, 0, 1, 0});
    const SequenceRows& late = step.sequences[0];
    REQUIRE(on_device(late.window_blocks + 13));
    CHECK(late.window_blocks[873 / 64] == 70);  // the oldest row of its window
    CHECK(late.window_blocks[1000 / 64] == 72);
    CHECK(late.compressed_kv_blocks[1000 / 256] == 8);
    CHECK(late.state_writes[0].slot == 20);
    CHECK(late.state_slot == 20);
    CHECK(step.sequences[1].window_blocks[0] == 40);
    CHECK(step.sequences[1].state_writes[1].row == 2);
    CHECK(step.sequences[2].rows == 0);
    CHECK(step.sequence(1).window_blocks == first_window.data());  // the host's
    CHECK(pass.head_rows[0] == 2);
    CHECK(pass.head_rows[1] == 0);
    CHECK(pass.from == nullptr);
    if (wanted == 1) {
      CHECK(pass.queries[0].row == -1);
      CHECK(pass.tokens == first.tokens);
      CHECK(step.positions == first.step.positions);
      CHECK(step.sequences == first.step.sequences);
      CHECK(pass.head_rows == first.head_rows);
      CHECK(pass.queries == first.queries);
      continue;
    }
    first = pass;
    CHECK(pass.queries[0].row == 0);
    CHECK(pass.queries[0].rule.top_k == 7);
    REQUIRE(on_device(pass.queries[0].allowed));
    CHECK(std::equal(with_text, with_text + 2, pass.queries[0].allowed));
    CHECK(pass.queries[1].row == 1);
    CHECK(pass.queries[1].rule.top_k == 8);
    REQUIRE(on_device(pass.queries[1].allowed));
    CHECK(std::equal(allowed, allowed + 2, pass.queries[1].allowed));
  }

  std::byte states[4];
  const std::byte* const sources[] = {states, states + 1};
  std::byte* const places[] = {states + 2, states + 3};
  const std::byte* const* from = sources;
  std::byte* const* to = places;
  REQUIRE_OK(upload.Pointers(2, &from, &to));
  REQUIRE(on_device(from));
  CHECK(from[1] == states + 1);
  CHECK(to[0] == states + 2);

  // An MTP pass without padding, and a head that nothing is asked of but its second row.
  PassInputs mtp = inputs;
  const std::byte* const mtp_sources[] = {states, states + 1, states + 2};
  std::byte* const mtp_places[] = {states + 3, states + 2, states};
  mtp.from = mtp_sources, mtp.to = mtp_places;
  REQUIRE_OK(upload.Pass({.rows = 3, .sequences = 2, .head_rows = 0}, {}, &mtp));
  REQUIRE(on_device(mtp.from));
  CHECK(std::equal(mtp_sources, mtp_sources + 3, mtp.from));
  CHECK(std::equal(mtp_places, mtp_places + 3, mtp.to));
  REQUIRE_OK(upload.Head({.rows = {2, 0}, .questions = {questions[1]}}, &mtp));
  REQUIRE(on_device(mtp.head_rows));
  CHECK(std::vector<int32_t>(mtp.head_rows, mtp.head_rows + 2) == std::vector<int32_t>{2, 0});
  CHECK(mtp.queries[0].row == -1);
  CHECK(mtp.queries[1].row == 1);
  CHECK(std::equal(allowed, allowed + 2, mtp.queries[1].allowed));
  CHECK(std::equal(ids, ids + 3, mtp.tokens));  // still there
}

TEST_CASE("a pass that is fetched stays in host memory until then") {
  FarDevice device;
  const StepLimits limits{.rows = 8, .sequences = 4, .logit_rows = 2, .positions = 2048};
  const int64_t vocab = 40, mask_bytes = TokenMasks::DeviceBytes(device, 2, vocab);
  auto memory = device.Allocate(mask_bytes + StepUpload::DeviceBytes(device, limits), "test");
  REQUIRE_OK(memory);
  TokenMasks masks;
  StepUpload upload;
  REQUIRE_OK(masks.Place(&device, 2, vocab, memory->data(), {}));
  REQUIRE_OK(upload.PlaceFetched(&device, limits, &masks, memory->data() + mask_bytes));

  const int32_t windows[] = {3, 4}, compressed[] = {5}, sequence_of[] = {0, 0}, ids[] = {21, 22};
  const int64_t positions[] = {63, 64};
  const SequenceRows sequence{0, 2, 63, windows, compressed, 0, kNoBlock, nullptr, 0};
  PassInputs pass{.step = {.rows = 2,
                           .sequence_count = 1,
                           .sequences = &sequence,
                           .sequence_of = sequence_of,
                           .positions = positions},
                  .tokens = ids,
                  .rope_positions = positions};
  const LogitQuestion question{.row = 0, .rule = {.top_k = 3}};
  const StepUpload::Shape shape{.rows = 4, .sequences = 4, .head_rows = 2};
  REQUIRE_OK(upload.Pass(shape, {.rows = {1}, .questions = {question}}, &pass));
  CHECK(pass.tokens[0] == 0);
  const CopyRowsParams fetch = upload.Fetch(shape);
  REQUIRE(fetch.rows == 1);
  REQUIRE(fetch.to[0] + fetch.row_bytes <= memory->data() + memory->size_bytes());
  REQUIRE_OK(device.Copy(fetch.to[0], fetch.from[0], fetch.row_bytes));
  CHECK(std::vector<int32_t>(pass.tokens, pass.tokens + 4) == std::vector<int32_t>{21, 22, 0, 0});
  CHECK(pass.step.sequences[0].window_blocks[1] == 4);
  CHECK(pass.step.sequences[0].compressed_kv_blocks[0] == 5);
  CHECK(pass.step.sequences[3].rows == 0);
  CHECK(pass.head_rows[0] == 1);
  CHECK(pass.queries[0].rule.top_k == 3);
  CHECK(pass.queries[0].allowed[0] == ~0u);
  CHECK(pass.queries[1].row == -1);
}

}  // namespace
}  // namespace dsv4
