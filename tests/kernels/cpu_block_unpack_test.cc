// SPDX-License-Identifier: Apache-2.0
// Every way to unpack rows in blocks gives the codes, scales and minima of UnpackBlocks.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/block_dot.h"
#include "lib/tensor/block_format.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/tested_backend.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

// The values, where all NaNs are one.
void RequireSame(const std::vector<float>& expected, const void* found) {
  for (size_t i = 0; i < expected.size(); ++i) {
    float value;
    std::memcpy(&value, static_cast<const std::byte*>(found) + i * sizeof value, sizeof value);
    INFO("number " << i << ": " << value << " for " << expected[i]);
    if (std::isnan(expected[i])) {
      REQUIRE(std::isnan(value));
    } else {
      REQUIRE(std::memcmp(&value, &expected[i], sizeof value) == 0);
    }
  }
}

void CheckLoaded(BlockType type, const std::vector<uint8_t>& row, int64_t k) {
  std::vector<float> expected(static_cast<size_t>(k)), found(expected.size());
  LoadBlocks(type, row.data(), k, expected.data());
  Tested().for_each_variant([&] {
    INFO(InfoOf(type).name << ", " << ActiveBlockDotKernels().name);
    ActiveBlockDotKernels().load(type, row.data(), k, found.data());
    RequireSame(expected, found.data());
  });
}

TEST_CASE("rows in blocks are unpacked to the same codes, scales and minima") {
  for (int t = static_cast<int>(BlockType::kF32); t < static_cast<int>(BlockType::kCount); ++t) {
    const auto type = static_cast<BlockType>(t);
    const BlockInfo& info = InfoOf(type);
    for (const int64_t k : {int64_t{128}, int64_t{384}, int64_t{2048}}) {
      if (k % info.elements != 0) continue;
      // Any bytes are a row, also with scales that are not finite.
      std::vector<uint8_t> row(static_cast<size_t>(BlockBytes(type, k)));
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = static_cast<uint8_t>(RandomValue(static_cast<uint64_t>(t) + 90, i) * 128 + 128);
      }
      if (!IsQuantised(type)) {
        CheckLoaded(type, row, k);
        continue;
      }
      const auto runs = static_cast<size_t>(k / kBlockRun);
      std::vector<int8_t> codes(static_cast<size_t>(k));
      std::vector<float> scales(runs), mins(runs);
      UnpackBlocks(type, row.data(), k, codes.data(), scales.data(), mins.data());
      Tested().for_each_variant([&] {
        std::vector<std::byte> unpacked(static_cast<size_t>(UnpackedBlockBytes(k)));
        const BlockDotKernels& kernels = ActiveBlockDotKernels();
        kernels.unpack(type, row.data(), k, unpacked.data());
        INFO(info.name << ", " << k << " elements, " << kernels.name);
        REQUIRE(std::memcmp(unpacked.data(), codes.data(), codes.size()) == 0);
        RequireSame(scales, &unpacked[codes.size()]);
        if (info.has_min()) RequireSame(mins, &unpacked[codes.size() + runs * sizeof(float)]);
      });
    }
  }
}

}  // namespace
}  // namespace dsv4::test
