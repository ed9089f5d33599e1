// SPDX-License-Identifier: Apache-2.0
#include "lib/model/token_masks.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

// Counts what is sent.
class CountingDevice final : public test::FarDevice {
 public:
  absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    ++uploads;
    return FarDevice::Upload(to, from, bytes);
  }
  int uploads = 0;
};

TEST_CASE("a mask is sent once, and again when others took its place") {
  constexpr int64_t kVocab = 70;
  CountingDevice device;
  auto memory = device.Allocate(TokenMasks::DeviceBytes(device, 2, kVocab), "test");
  REQUIRE_OK(memory);
  TokenMasks masks;
  const std::vector<uint32_t> text = {0xfffffff0, ~0u, 0x7};
  REQUIRE_OK(masks.Place(&device, 2, kVocab, memory->data(), text));
  device.uploads = 0;
  const std::vector<uint32_t> mask[] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 1}};
  const auto finds = [&](size_t i) {
    const absl::StatusOr<const uint32_t*> place = masks.OnDevice(mask[i], i + 1);
    REQUIRE_OK(place);
    CHECK(std::equal(mask[i].begin(), mask[i].end(), *place));
    return *place;
  };
  masks.Begin();
  const auto with_text = masks.OnDevice({}, 0);
  REQUIRE_OK(with_text);
  CHECK(std::equal(text.begin(), text.end(), *with_text));
  CHECK(device.uploads == 0);
  const uint32_t* const first = finds(0);
  const uint32_t* const second = finds(1);
  CHECK(second != first);
  CHECK(finds(0) == first);  // rows of one session
  CHECK(device.uploads == 2);

  masks.Begin();
  CHECK(finds(1) == second);
  CHECK(device.uploads == 2);
  CHECK(finds(2) == first);  // the one that the pass does not use
  CHECK(finds(1) == second);
  CHECK(device.uploads == 3);

  masks.Begin();
  finds(0);
  CHECK(device.uploads == 4);
}

TEST_CASE("without a mask of tokens with text, all have text") {
  test::FarDevice device;
  auto memory = device.Allocate(TokenMasks::DeviceBytes(device, 1, 33), "test");
  REQUIRE_OK(memory);
  TokenMasks masks;
  REQUIRE_OK(masks.Place(&device, 1, 33, memory->data(), {}));
  masks.Begin();
  const auto all = masks.OnDevice({}, 0);
  REQUIRE_OK(all);
  CHECK((*all)[0] == ~0u);
  CHECK(((*all)[1] & 1) == 1);
}

}  // namespace
}  // namespace dsv4
