// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's rope_table and copy_rows.
#include <cmath>

#include "kernels/op/dense.h"
#include "tests/kernels/cuda_step.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

void CheckRopeTable(const std::vector<int64_t>& positions) {
  const auto rows = static_cast<int32_t>(positions.size());
  DeviceCopy<int64_t> device_positions(positions);
  std::vector<DeviceCopy<float>> tables;
  for (int i = 0; i < 4; ++i) tables.emplace_back(int64_t{rows} * 64);
  RopeTableParams p;
  p.rows = rows;
  p.positions = device_positions.data();
  FillRopeFrequencies(10000, 0, 0, 0, 0, p.frequencies.window);
  FillRopeFrequencies(160000, 16, 65536, 32, 1, p.frequencies.compressed);
  p.out = {tables[0].data(), tables[1].data(), tables[2].data(), tables[3].data()};
  ReplayOnCuda(kSm12xRopeTable, p);
  std::vector<std::vector<float>> values;
  for (const auto& table : tables) {
    REQUIRE(table.Intact());
    values.push_back(table.Download());
  }
  const auto check = [&](size_t table, int64_t row, int64_t position, const float* frequencies) {
    std::vector<float> want(64);
    for (size_t i = 0; i < 32; ++i) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequencies[i]);
      want[i] = static_cast<float>(std::cos(angle));
      want[32 + i] = static_cast<float>(std::sin(angle));
    }
    INFO("table " << table << ", position " << position);
    REQUIRE(FarElements(absl::MakeConstSpan(values[table].data() + row * 64, 64), want) == "");
  };
  const auto untouched = [&](size_t table, int64_t row) {
    const std::vector<float> poison(64, std::bit_cast<float>(0xfdfdfdfdu));
    REQUIRE(DifferentBits(absl::MakeConstSpan(values[table].data() + row * 64, 64), poison) == "");
  };
  for (int32_t r = 0; r < rows; ++r) {
    const int64_t t = positions[static_cast<size_t>(r)];
    check(0, r, t, p.frequencies.window);
    check(1, r, t, p.frequencies.compressed);
    if (t % 4 == 3) {
      check(2, r, t - 3, p.frequencies.compressed);
    } else {
      untouched(2, r);
    }
    if (t % 128 == 127) {
      check(3, r, t - 127, p.frequencies.compressed);
    } else {
      untouched(3, r);
    }
  }
}

TEST_CASE("sm12x rope_table is cos and sin of the f32 angle, correctly rounded") {
  std::vector<int64_t> positions = {127,  128,  129,  255,  256,   257,   511,     512,    513,
                                    2047, 2048, 2049, 2050, 2051,  2052,  0,       1,      2,
                                    3,    4,    5,    999,  16383, 65535, 1048575, 1048574};
  for (uint64_t i = 0; i < 500; ++i) positions.push_back(static_cast<int64_t>(Hash(i) % 1048576));
  CheckRopeTable(positions);
  for (const int32_t rows : {1, 2, 3, 6, 8, 48, 64, 65, 192}) {
    INFO(rows << " rows");
    CheckRopeTable({positions.begin(), positions.begin() + rows});
  }
}

TEST_CASE("sm12x copy_rows copies rows of any length and alignment") {
  for (const int64_t bytes : {1, 2, 15, 16, 17, 4096, 4100, 33003}) {
    for (const int64_t offset : {0, 1, 2, 16}) {
      for (const int64_t rows : {1, 2, 3, 6, 8, 48, 64, 65, 192}) {
        INFO(rows << " rows of " << bytes << " bytes at offset " << offset);
        const int64_t stride = (bytes + 47) / 16 * 16;
        std::vector<unsigned char> values(static_cast<size_t>(rows * stride));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(Hash(i));
        DeviceCopy<unsigned char> source(values), target(rows * stride);
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (int64_t r = 0; r < rows; ++r) {
          from.push_back(reinterpret_cast<const std::byte*>(source.data()) +
                         (rows - 1 - r) * stride + offset);
          to.push_back(reinterpret_cast<std::byte*>(target.data()) + r * stride + offset);
        }
        DeviceCopy<const std::byte*> device_from(from);
        DeviceCopy<std::byte*> device_to(to);
        CopyRowsParams p;
        p.rows = static_cast<int32_t>(rows);
        p.row_bytes = bytes;
        p.from = device_from.data();
        p.to = device_to.data();
        ReplayOnCuda(kSm12xCopyRows, p);
        REQUIRE(target.Intact());
        std::vector<unsigned char> want(values.size(), kCudaPoison);
        for (int64_t r = 0; r < rows; ++r) {
          std::copy_n(values.begin() + (rows - 1 - r) * stride + offset, bytes,
                      want.begin() + r * stride + offset);
        }
        REQUIRE(target.Download() == want);
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::test
