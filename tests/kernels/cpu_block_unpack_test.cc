// SPDX-License-Identifier: Apache-2.0
// Every way to unpack rows in blocks gives the codes, scales and minima of UnpackBlocks, and
// products that read the blocks have the bits of those that read unpacked rows.
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/block_dot.h"
#include "lib/tensor/block_format.h"
#include "tests/kernels/operator_weights.h"
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

// A row that is interleaved by `piece` elements as UnpackBlockRow leaves it. With AVX512-VNNI,
// whose pieces are 256, requires that sums begin at -128 times the codes, and zeros behind the row.
std::vector<std::byte> InOrder(const std::vector<std::byte>& row, int64_t k, size_t piece) {
  constexpr size_t kRun = kBlockRun;
  const bool vnni = piece == 256;
  const auto elements = static_cast<size_t>(vnni ? FilledElements(k) : k);
  std::vector<std::byte> filled(elements / 2 * 3);
  for (size_t p = 0; p < elements; p += piece) {
    for (size_t run = 0; run < piece / kRun; ++run) {
      // A vector has `blocks` blocks of four lanes.
      const size_t blocks = piece / 64, lane = run % blocks * 4 + run / blocks;
      int32_t sum = 0, begin = 0;
      for (size_t i = 0; i < kRun; ++i) {
        const std::byte code = row[p + i / 4 * (piece / 4) + lane * 4 + i % 4];
        filled[p + run * kRun + i] = code;
        sum += static_cast<int8_t>(code);
      }
      for (const size_t numbers : {elements, elements / 4 * 5}) {
        std::memcpy(&filled[numbers + p / 4 + run * 4], &row[numbers + p / 4 + lane * 4], 4);
      }
      if (!vnni) continue;
      std::memcpy(&begin, &row[elements / 2 * 3 + p / 4 + lane * 4], sizeof begin);
      REQUIRE(begin == -128 * sum);
    }
  }
  const auto length = static_cast<size_t>(k);
  std::vector<std::byte> natural(length / 2 * 3);
  std::memcpy(&natural[0], &filled[0], length);
  std::memcpy(&natural[length], &filled[elements], length / 4);
  std::memcpy(&natural[length / 4 * 5], &filled[elements / 4 * 5], length / 4);
  for (size_t i = length; i < elements; ++i) REQUIRE(filled[i] == std::byte{});
  return natural;
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
        if (kernels.interleaved != 0) {
          unpacked = InOrder(unpacked, k, static_cast<size_t>(kernels.interleaved));
        }
        REQUIRE(std::memcmp(unpacked.data(), codes.data(), codes.size()) == 0);
        RequireSame(scales, &unpacked[codes.size()]);
        if (info.has_min()) RequireSame(mins, &unpacked[codes.size() + runs * sizeof(float)]);
      });
    }
  }
}

TEST_CASE("products with rows in blocks have the bits of products with unpacked rows") {
  constexpr int64_t kMostRows = 7, kWeightRows = 5;
  std::map<std::string, std::set<BlockType>> found;  // of each kernel
  for (int t = 0; t < static_cast<int>(BlockType::kCount); ++t) {
    const auto type = static_cast<BlockType>(t);
    if (!IsQuantised(type)) continue;
    for (const int64_t k : {int64_t{256}, int64_t{384}, int64_t{2048}}) {
      if (k % InfoOf(type).elements != 0) continue;
      const BlockStorage w(static_cast<uint64_t>(t), kWeightRows, k, type);
      const std::vector<float> x = RandomFloats(static_cast<uint64_t>(k), kMostRows * k);
      Tested().for_each_variant([&] {
        const BlockDotKernels& kernels = ActiveBlockDotKernels();
        const BlockDotKernels::Direct direct = kernels.direct(type, k);
        if (kernels.interleaved != 0) found[kernels.name];
        if (direct == nullptr) return;
        found[kernels.name].insert(type);
        std::vector<std::byte> a(static_cast<size_t>(kMostRows * PackedInt8Bytes(k)));
        for (int64_t i = 0; i < kMostRows; ++i) {
          std::vector<uint16_t> row;
          for (int64_t p = 0; p < k; ++p) {
            // The second row's largest magnitude is everywhere.
            const float value = x[static_cast<size_t>(i * k + p)];
            row.push_back(FloatToBf16(i == 1 ? std::copysign(1.f, value) : value));
          }
          kernels.pack(row.data(), k, &a[static_cast<size_t>(i * PackedInt8Bytes(k))]);
        }
        std::vector<std::byte> unpacked(static_cast<size_t>(kWeightRows * UnpackedBlockBytes(k)));
        for (int64_t j = 0; j < kWeightRows; ++j) {
          kernels.unpack(type, w.view().Row(j), k,
                         &unpacked[static_cast<size_t>(j * UnpackedBlockBytes(k))]);
        }
        for (int64_t m = 1; m <= kMostRows; ++m) {
          for (int64_t n = 1; n <= kWeightRows; ++n) {
            INFO(InfoOf(type).name << ", " << k << " elements, " << m << " by " << n << " rows, "
                                   << kernels.name);
            constexpr int64_t kStride = kWeightRows + 1;
            std::vector<float> expected(static_cast<size_t>(kMostRows * kStride), -1.f);
            std::vector<float> products = expected;
            kernels.int8(a.data(), m, unpacked.data(), n, k, InfoOf(type).has_min(),
                         expected.data(), kStride);
            direct(a.data(), m, w.view().data, n, k, products.data(), kStride);
            RequireSame(expected, products.data());
          }
        }
      });
    }
  }
#if defined(__x86_64__)
  const bool has_avx2 = (hwy::SupportedTargets() & HWY_AVX2) != 0;
  REQUIRE(found.empty() == !has_avx2);
#endif
  for (const auto& [name, types] : found) {
    INFO(name);
    REQUIRE(types.size() == 7);
  }
}

}  // namespace
}  // namespace dsv4::test
