// SPDX-License-Identifier: Apache-2.0
// The cpu backend's packing of rows on every compiled instruction set: byte for byte what the
// reference writes, which the recorded oracle and bytes computed by hand pin; and unpacking of
// every code and scale.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/cpu_cache_rows_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

void TestStoreKvRow(const uint16_t* row, const RowPool& pool, int32_t block, int64_t slot) {
  StoreKvRow(row, pool, block, slot);
}
void TestPackIndexKey(const uint16_t* key, std::byte* data, std::byte* scales) {
  PackIndexKey(key, data, scales);
}
void TestUnpackRow(const std::byte* data, const std::byte* scales, uint16_t* out) {
  UnpackRow(data, scales, out);
}
void TestUnpackFp8Row(const std::byte* data, uint16_t* out) { UnpackFp8Row(data, out); }
void TestQuantiseQuery(uint16_t* q) { QuantiseQuery(q); }

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>

#include "kernels/op/cache_rows.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/tested_backend.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

HWY_EXPORT(TestStoreKvRow);
HWY_EXPORT(TestPackIndexKey);
HWY_EXPORT(TestUnpackRow);
HWY_EXPORT(TestUnpackFp8Row);
HWY_EXPORT(TestQuantiseQuery);

using Bytes = std::vector<uint8_t>;

// Block 1 of two in poisoned memory, after `store` has written its slot 1.
template <class F>
Bytes BlockAfter(RowFormat format, int64_t elements, F&& store) {
  const auto block = static_cast<size_t>(BlockBytes(format, elements, 3));
  Bytes memory(2 * block, 0xfd);
  store(RowPool::Of(reinterpret_cast<std::byte*>(memory.data()), format, elements, 3));
  return memory;
}

// bf16 rows whose runs have all magnitudes, from subnormal numbers to the largest; some with zeros
// of both signs, some with one large element, some with values on the ties of the quantisers.
std::vector<std::vector<uint16_t>> SampleRows(int64_t elements) {
  std::vector<std::vector<uint16_t>> rows;
  for (int seed = 0; seed < 600; ++seed) {
    std::vector<uint16_t>& row = rows.emplace_back();
    for (int64_t i = 0; i < elements; ++i) {
      const int run = static_cast<int>(i / 32) + seed;
      const uint64_t h = Hash(static_cast<uint64_t>(seed) * 4096 + static_cast<uint64_t>(i));
      float v = Value(71, seed, 0, i);
      if (run % 5 == 1) v = static_cast<float>(static_cast<int>(h % 64) - 32) / 4;
      if (run % 7 == 2) v = std::ldexp(v, -static_cast<int>(h % 24));
      if (run % 11 == 3) v = h % 3 == 0 ? 0.0f : -0.0f;
      v = std::ldexp(v, static_cast<int>(Hash(static_cast<uint64_t>(run / 2)) % 250) - 130);
      if (run % 13 == 4 && i % 32 == 9) v = Bf16ToFloat(0xff7f);
      row.push_back(FloatToBf16(std::isinf(v) ? Bf16ToFloat(0x7f7f) : v));
    }
  }
  return rows;
}

TEST_CASE("cpu rows and index keys are stored as the reference stores them, byte for byte") {
  const auto want = [](RowFormat format, const std::vector<uint16_t>& row) {
    std::vector<float> values;
    for (const uint16_t v : row) values.push_back(Bf16ToFloat(v));
    return BlockAfter(format, static_cast<int64_t>(row.size()),
                      [&](const RowPool& pool) { StoreRow(pool, 1, 1, values.data()); });
  };
  const std::vector<std::vector<uint16_t>> rows = SampleRows(512), keys = SampleRows(128);
  ForEachVariant([&] {
    for (const std::vector<uint16_t>& row : rows) {
      for (const RowFormat format :
           {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor}) {
        REQUIRE(BlockAfter(format, 512, [&](const RowPool& pool) {
                  HWY_DYNAMIC_DISPATCH(TestStoreKvRow)(row.data(), pool, 1, 1);
                }) == want(format, row));
      }
    }
    for (const std::vector<uint16_t>& key : keys) {
      REQUIRE(BlockAfter(RowFormat::kIndexFp4, 128, [&](const RowPool& pool) {
                HWY_DYNAMIC_DISPATCH(TestPackIndexKey)
                (key.data(), pool.Row(1, 1), pool.Scales(1, 1));
              }) == want(RowFormat::kIndexFp4, key));
    }
  });
}

TEST_CASE("cpu unpacking gives the value of every code at every scale") {
  ForEachVariant([] {
    // The scales that act_quant gives: from 1e-4 / 448 to 2^128 / 448, rounded up.
    for (int scale = 127 - 22; scale <= 127 + 120; ++scale) {
      alignas(64) std::byte data[576], scales[8] = {};
      for (int code = 0; code < 256; ++code) {
        if ((code & 0x7f) == 0x7f) continue;  // NaN
        // The largest bf16 number gives 256 times the largest scale, infinity; nothing gives more.
        if (scale == 127 + 120 && (code & 0x7f) > 0x78) continue;
        // The code among others, and in each of the runs.
        for (int i = 0; i < 448; ++i) data[i] = static_cast<std::byte>((code + i % 3) & 0x77);
        for (int run = 0; run < 7; ++run) {
          data[64 * run + (code * 7 + run) % 64] = static_cast<std::byte>(code);
          scales[run] = static_cast<std::byte>(scale);
        }
        for (int i = 448; i < 576; ++i) data[i] = static_cast<std::byte>(i * 37);
        uint16_t out[513] = {};
        out[512] = 0xfdfd;
        HWY_DYNAMIC_DISPATCH(TestUnpackRow)(data, scales, out);
        for (int i = 0; i < 448; ++i) {
          const float want = std::ldexp(E4M3ToFloat(static_cast<uint8_t>(data[i])), scale - 127);
          if (out[i] != FloatToBf16(want) || Bf16ToFloat(out[i]) != want) {
            CAPTURE(scale, code, i, out[i], want);
            REQUIRE(false);
          }
        }
        REQUIRE(std::memcmp(out + 448, data + 448, 128) == 0);
        REQUIRE(out[512] == 0xfdfd);
      }
    }
  });
}

TEST_CASE("cpu fp8_per_tensor rows have the value of every code; queries are such values") {
  ForEachVariant([] {
    for (int shift = 0; shift < 256; ++shift) {
      std::byte data[512];
      for (int i = 0; i < 512; ++i) {
        const int code = (i + shift) % 256;
        data[i] = std::byte{static_cast<uint8_t>((code & 0x7f) == 0x7f ? 0 : code)};
      }
      uint16_t out[513] = {};
      out[512] = 0xfdfd;
      HWY_DYNAMIC_DISPATCH(TestUnpackFp8Row)(data, out);
      std::vector<float> got, want;
      for (int i = 0; i < 512; ++i) {
        got.push_back(Bf16ToFloat(out[i]));
        want.push_back(E4M3ToFloat(static_cast<uint8_t>(data[i])));
      }
      REQUIRE(FarElements(got, want) == "");
      REQUIRE(out[512] == 0xfdfd);
    }
    for (const std::vector<uint16_t>& row : SampleRows(512)) {
      std::vector<uint16_t> query;
      std::vector<float> want;
      for (const uint16_t bits : row) {
        const float value = Bf16ToFloat(bits);
        query.push_back(std::abs(value) < 23 ? bits : FloatToBf16(std::copysign(22.5f, value)));
        want.push_back(Bf16ToFloat(query.back()));
      }
      HWY_DYNAMIC_DISPATCH(TestQuantiseQuery)(query.data());
      QuantiseQuery(want.data());
      std::vector<uint16_t> want_bits;
      for (const float value : want) want_bits.push_back(FloatToBf16(value));
      REQUIRE(DifferentBits(query, want_bits) == "");
    }
  });
}

TEST_CASE("a fp8_per_tensor row with a NaN or an infinity is a row of NaNs") {
  ForEachVariant([] {
    for (const uint16_t broken : {0x7fc0, 0xffc0, 0x7f81, 0x7f80, 0xff80}) {
      for (const size_t at : {0, 77, 511}) {
        std::vector<uint16_t> row(512, FloatToBf16(1));
        row[at] = broken;
        std::vector<std::byte> block(BlockBytes(RowFormat::kFp8PerTensor, 512, 1));
        const RowPool pool = RowPool::Of(block.data(), RowFormat::kFp8PerTensor, 512, 1);
        HWY_DYNAMIC_DISPATCH(TestStoreKvRow)(row.data(), pool, 0, 0);
        uint16_t out[512];
        HWY_DYNAMIC_DISPATCH(TestUnpackFp8Row)(pool.Row(0, 0), out);
        std::vector<float> got;
        for (const uint16_t bits : out) got.push_back(Bf16ToFloat(bits));
        REQUIRE(FarElements(got, std::vector<float>(512, NAN)) == "");
      }
    }
  });
}

// What came from a broken activation must not look sound again.
TEST_CASE("a run with a NaN or an infinity is a run of NaNs") {
  ForEachVariant([] {
    for (const uint16_t broken : {0x7fc0, 0xffc0, 0x7f81, 0x7f80, 0xff80}) {
      for (const int at : {0, 1, 63}) {
        std::vector<uint16_t> row(512, FloatToBf16(1));
        row[static_cast<size_t>(128 + at)] = broken;
        std::vector<std::byte> block(BlockBytes(RowFormat::kPacked, 512, 1));
        const RowPool pool = RowPool::Of(block.data(), RowFormat::kPacked, 512, 1);
        HWY_DYNAMIC_DISPATCH(TestStoreKvRow)(row.data(), pool, 0, 0);
        uint16_t out[512];
        HWY_DYNAMIC_DISPATCH(TestUnpackRow)(pool.Row(0, 0), pool.Scales(0, 0), out);
        const auto broken_in = [&](int begin, int end) {
          return std::count_if(out + begin, out + end,
                               [](uint16_t bits) { return std::isnan(Bf16ToFloat(bits)); });
        };
        REQUIRE(broken_in(128, 192) == 64);
        REQUIRE(broken_in(0, 512) == 64);
      }
    }
  });
}

}  // namespace
}  // namespace dsv4::test
#endif  // HWY_ONCE
