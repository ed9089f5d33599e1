// SPDX-License-Identifier: Apache-2.0
// The formats of cache rows: where their bytes lie, by hand; what the reference writes, against
// bytes computed by hand and the oracle's recorded quantisers; and that reading gives it back.
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/op/attention.h"
#include "kernels/op/cache_rows.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/tensor_file.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

const test::TensorFile& Ops() {
  static const test::TensorFile file(DSV4_SOURCE_DIR "/tests/oracle/expected/ops.safetensors");
  return file;
}

TEST_CASE("a block holds its rows, then their scales, then padding") {
  // The sizes of kernels.md 2.1 and 2.2, and of the formats that hold one number after the other.
  REQUIRE(BlockBytes(RowFormat::kPacked, 512, 64) == 37440);
  REQUIRE(BlockBytes(RowFormat::kPacked, 512, 2) == 1728);
  REQUIRE(BlockBytes(RowFormat::kIndexFp4, 128, 64) == 64 * 68);
  REQUIRE(BlockBytes(RowFormat::kBf16, 512, 64) == 64 * 1024);
  REQUIRE(BlockBytes(RowFormat::kF32, 512, 2) == 2 * 2048);
  REQUIRE(BlockBytes(RowFormat::kF32, 128, 64) == 64 * 512);
  REQUIRE(BlockBytes(RowFormat::kFp8PerTensor, 512, 64) == 64 * 512);

  std::vector<std::byte> blocks(4 * 37440);
  const auto offset = [&](const std::byte* row) { return row - blocks.data(); };
  const RowPool packed = RowPool::Of(blocks.data(), RowFormat::kPacked, 512, 64);
  REQUIRE(offset(packed.Row(3, 5)) == 3 * 37440 + 5 * 576);
  REQUIRE(offset(packed.Scales(3, 5)) == 3 * 37440 + 64 * 576 + 5 * 8);
  const RowPool two = RowPool::Of(blocks.data(), RowFormat::kPacked, 512, 2);
  REQUIRE(offset(two.Scales(1, 1)) == 1728 + 2 * 576 + 8);
  const RowPool keys = RowPool::Of(blocks.data(), RowFormat::kIndexFp4, 128, 64);
  REQUIRE(offset(keys.Row(1, 7)) == 4352 + 7 * 64);
  REQUIRE(offset(keys.Scales(1, 7)) == 4352 + 64 * 64 + 7 * 4);
}

// One row's pool in the middle of memory that must stay as it is.
class OneRow {
 public:
  OneRow(RowFormat format, int64_t elements) : elements_(elements) {
    const auto block = static_cast<size_t>(BlockBytes(format, elements, 3));
    memory_.assign(2 * block, 0xfd);
    pool_ = RowPool::Of(reinterpret_cast<std::byte*>(memory_.data()), format, elements, 3);
  }
  // Data and scales after a launch with `numerics` stored `row`; nothing else is written.
  std::pair<Bytes, Bytes> Store(Floats row, Numerics numerics = Numerics::kPublished) {
    REQUIRE(row.size() == static_cast<size_t>(elements_));
    StoreRow(pool_, 1, 2, row.data(), numerics != Numerics::kExact);
    const auto take = [&](std::byte* from, int64_t bytes) {
      auto* begin = reinterpret_cast<uint8_t*>(from);
      Bytes out(begin, begin + bytes);
      std::fill_n(begin, bytes, uint8_t{0xfd});
      return out;
    };
    const int64_t data = pool_.row_bytes, scales = RowScaleBytes(pool_.format);
    const std::pair<Bytes, Bytes> got = {take(pool_.Row(1, 2), data),
                                         take(pool_.Scales(1, 2), scales)};
    REQUIRE(memory_ == Bytes(memory_.size(), 0xfd));
    const auto put_back = [](const Bytes& bytes, std::byte* to) {
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(to));
    };
    put_back(got.first, pool_.Row(1, 2));
    put_back(got.second, pool_.Scales(1, 2));
    return got;
  }
  Floats Load() {
    Floats row(static_cast<size_t>(elements_), NAN);
    LoadRow(pool_, 1, 2, row.data());
    std::fill(memory_.begin(), memory_.end(), uint8_t{0xfd});
    return row;
  }

 private:
  int64_t elements_;
  Bytes memory_;
  RowPool pool_;
};

TEST_CASE("packed rows, by hand") {
  Floats row(512, 0.0f);
  // Run 0: all zero, at the floor of the scale: 1e-4 / 448 is just below 2^-22.
  // Run 1: largest 448, scale 1. Run 2: largest 1.75 = 448 / 256: scale 2^-8, so that 2^-17 and
  // 7 * 2^-17 are the smallest and the largest of e4m3 below its normal range, 2^-14 the first in
  // it, and half of the smallest a tie that goes to zero. Run 3: 449 needs scale 2.
  row[64] = 448;
  row[65] = -448;
  row[66] = 1;
  row[67] = -0.0f;
  row[68] = 17;  // a tie between 16 and 18: to the even code
  row[69] = 19;  // a tie between 18 and 20
  row[128] = 1.75f;
  row[129] = 0x1p-17f;
  row[130] = -7 * 0x1p-17f;
  row[131] = 0x1p-14f;
  row[132] = 0x1p-18f;
  row[133] = 0x1.8p-17f;
  row[192] = 449;
  row[193] = 3;
  // Run 4: the largest bf16 number, 255 * 2^120, whose quantised value is infinite.
  row[256] = Bf16ToFloat(0x7f7f);
  row[257] = 0x1p120f;
  row[448] = 1.5f;
  row[511] = -2;
  OneRow stored(RowFormat::kPacked, 512);
  const auto [data, scales] = stored.Store(row);
  REQUIRE(data.size() == 576);
  REQUIRE(scales == Bytes{127 - 22, 127, 127 - 8, 128, 127 + 120, 127 - 22, 127 - 22, 0});
  REQUIRE(Bytes(data.begin(), data.begin() + 64) == Bytes(64, 0));
  REQUIRE(Bytes(data.begin() + 64, data.begin() + 70) == Bytes{0x7e, 0xfe, 0x38, 0x80, 0x58, 0x5a});
  REQUIRE(Bytes(data.begin() + 128, data.begin() + 134) ==
          Bytes{0x7e, 0x01, 0x87, 0x08, 0x00, 0x02});
  REQUIRE(Bytes(data.begin() + 192, data.begin() + 194) == Bytes{0x76, 0x3c});
  REQUIRE(Bytes(data.begin() + 256, data.begin() + 258) == Bytes{0x78, 0x38});
  REQUIRE(Bytes(data.begin() + 448, data.begin() + 450) == Bytes{0xc0, 0x3f});
  REQUIRE(Bytes(data.begin() + 574, data.end()) == Bytes{0x00, 0xc0});
  Floats want = row;
  want[68] = 16;
  want[69] = 20;
  want[132] = 0;
  want[133] = 0x1p-16f;
  want[192] = 448;
  want[256] = INFINITY;
  REQUIRE(test::DifferentBits(stored.Load(), want) == "");
}

TEST_CASE("index keys, by hand") {
  Floats row(128, 0.0f);
  // Run 0: 6 needs scale 1; ties at 0.25, 0.75, 1.25, 2.5, 3.5 and 5 go to the even code.
  const float values[] = {6, -0.5f, 1, -1.5f, 2, 3, 4, -0.0f, 0.25f, 0.75f, 1.25f, 2.5f, 3.5f, 5};
  std::copy(std::begin(values), std::end(values), row.begin());
  // Run 1: 6.5 needs scale 2. Run 2: the smallest scale, 2^-126, with 0.5 of it. Run 3: zeros.
  row[32] = 6.5f;
  row[33] = -1;
  row[64] = 0x1p-127f;
  row[95] = -6 * 0x1p-126f;
  OneRow stored(RowFormat::kIndexFp4, 128);
  const auto [data, scales] = stored.Store(row);
  REQUIRE(data.size() == 64);
  REQUIRE(scales == Bytes{127, 128, 1, 1});
  REQUIRE(Bytes(data.begin(), data.begin() + 8) ==
          Bytes{0x97, 0xb2, 0x54, 0x86, 0x20, 0x42, 0x66, 0x00});
  REQUIRE(data[16] == 0x95);
  REQUIRE(data[32] == 0x01);
  REQUIRE(data[47] == 0xf0);
  REQUIRE(Bytes(data.begin() + 48, data.end()) == Bytes(16, 0));
  Floats want = row;
  const float rounded[] = {0, 1, 1, 2, 4, 4};
  std::copy(std::begin(rounded), std::end(rounded), want.begin() + 8);
  want[32] = 6;
  REQUIRE(test::DifferentBits(stored.Load(), want) == "");
}

TEST_CASE("fp8_per_tensor rows, by hand") {
  Floats row(512, 0.0f);
  row[0] = 1;
  row[1] = -1000;  // beyond 448
  row[2] = 17;     // a tie between 16 and 18: to the even code
  row[3] = 19;
  // Below the normal numbers, 2^-6, steps are 2^-9: the run of 64 has no scale of its own.
  row[64] = 0x1p-9f;
  row[65] = 0x1p-10f;  // a tie between 0 and 2^-9
  row[66] = 0x1.8p-9f;
  row[67] = -0x1.cp-7f;
  row[68] = -0.0f;
  row[448] = 1.05f;  // the tail, too: between 1 and 1.125
  row[511] = -0x1p-6f;
  for (const Numerics numerics : {Numerics::kPublished, Numerics::kFp32, Numerics::kExact}) {
    OneRow stored(RowFormat::kFp8PerTensor, 512);
    const auto [data, scales] = stored.Store(row, numerics);
    REQUIRE(scales.empty());
    REQUIRE(data.size() == 512);
    REQUIRE(Bytes(data.begin(), data.begin() + 4) == Bytes{0x38, 0xfe, 0x58, 0x5a});
    REQUIRE(Bytes(data.begin() + 64, data.begin() + 69) == Bytes{0x01, 0x00, 0x02, 0x87, 0x80});
    REQUIRE(data[448] == 0x38);
    REQUIRE(data[511] == 0x88);
    Floats want = row;
    want[1] = -448;
    want[2] = 16;
    want[3] = 20;
    want[65] = 0;
    want[66] = 0x1p-8f;
    want[448] = 1;
    REQUIRE(test::DifferentBits(stored.Load(), want) == "");
  }
  // A row with a number that is none has no other.
  for (const float broken : {NAN, INFINITY, -INFINITY}) {
    row[300] = broken;
    OneRow stored(RowFormat::kFp8PerTensor, 512);
    REQUIRE(stored.Store(row).first == Bytes(512, 0x7f));
    REQUIRE(test::FarElements(stored.Load(), std::vector<float>(512, NAN)) == "");
  }
}

TEST_CASE("queries that meet fp8_per_tensor rows, by hand") {
  Floats query(512, 0.0f);
  const float from[] = {1, -22.6f, 17, 0x1p-9f, 0x1p-10f, 0x1.1p-6f, -1.07f, -0.0f};
  const float to[] = {1, -22, 16, 0x1p-9f, 0, 0x1p-6f, -1.125f, -0.0f};
  std::copy(std::begin(from), std::end(from), query.begin() + 444);
  Floats want(512, 0.0f);
  std::copy(std::begin(to), std::end(to), want.begin() + 444);
  QuantiseQuery(query.data());
  REQUIRE(test::DifferentBits(query, want) == "");
  query[5] = NAN;
  QuantiseQuery(query.data());
  REQUIRE(std::isnan(query[5]));
}

TEST_CASE("packed rows hold the recorded act_quant, byte for byte") {
  const Floats x = Ops().Read<float>("act_quant64.x");
  const Floats round_trip = Ops().Read<float>("act_quant64.round_trip");
  const Floats scale = Ops().Read<float>("act_quant64.scale");
  const Bytes q = Ops().Read<uint8_t>("act_quant64.q");
  REQUIRE(x.size() == 24 * 512);
  for (size_t r = 0; r < 24; ++r) {
    Floats row(x.begin() + r * 512, x.begin() + (r + 1) * 512);
    OneRow stored(RowFormat::kPacked, 512);
    const auto [data, scales] = stored.Store(row);
    REQUIRE(Bytes(data.begin(), data.begin() + 448) ==
            Bytes(q.begin() + r * 512, q.begin() + r * 512 + 448));
    Floats powers;
    for (size_t run = 0; run < 7; ++run) powers.push_back(std::ldexp(1.0f, scales[run] - 127));
    REQUIRE(test::FarElements(powers, absl::MakeConstSpan(&scale[r * 8], 7)) == "");
    REQUIRE(scales[7] == 0);
    const Floats loaded = stored.Load();
    REQUIRE(std::memcmp(loaded.data(), &round_trip[r * 512], 448 * sizeof(float)) == 0);
    Floats tail;
    for (size_t i = 448; i < 512; ++i) tail.push_back(RoundToBf16(row[i]));
    REQUIRE(test::FarElements(absl::MakeConstSpan(&loaded[448], 64), tail) == "");
  }
}

TEST_CASE("index keys hold the recorded fp4_act_quant") {
  const Floats x = Ops().Read<float>("fp4_act_quant32.x");
  const Floats round_trip = Ops().Read<float>("fp4_act_quant32.round_trip");
  for (size_t begin = 0; begin < x.size(); begin += 128) {
    OneRow stored(RowFormat::kIndexFp4, 128);
    stored.Store(Floats(x.begin() + begin, x.begin() + begin + 128));
    REQUIRE(test::DifferentBits(stored.Load(), Floats(round_trip.begin() + begin,
                                                      round_trip.begin() + begin + 128)) == "");
  }
}

// Rows of bf16 numbers, as published numerics make them: every format gives the same row.
TEST_CASE("packed and f32 rows are the bf16 rows of published numerics") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Floats row;
    for (uint64_t i = 0; i < 512; ++i) {
      const float spread = std::ldexp(1.0f, static_cast<int>((seed * 7 + i / 64 * 13) % 200) - 100);
      row.push_back(RoundToBf16(test::RandomValue(seed, i) * spread));
    }
    const auto through = [&](RowFormat format, int64_t elements) {
      OneRow stored(format, elements);
      stored.Store(Floats(row.begin(), row.begin() + elements));
      return stored.Load();
    };
    const Floats bf16 = through(RowFormat::kBf16, 512);
    REQUIRE(bf16 != row);
    REQUIRE(test::DifferentBits(through(RowFormat::kPacked, 512), bf16) == "");
    REQUIRE(test::DifferentBits(through(RowFormat::kF32, 512), bf16) == "");
    REQUIRE(test::DifferentBits(through(RowFormat::kIndexFp4, 128),
                                through(RowFormat::kF32, 128)) == "");
  }
}

TEST_CASE("a kernel names the formats that it does not have") {
  const auto supports = [](const auto& params) {
    for (const KernelEntry& entry : ReferenceManifest()) {
      if (entry.op == params.kOp) return entry.supports(&params);
    }
    return absl::OkStatus();
  };
  CompressKvParams rows;
  rows.index_keys = true;
  rows.rows.format = RowFormat::kPacked;
  REQUIRE_FAILS(supports(rows), absl::StatusCode::kUnimplemented,
                "index keys in format packed; supported: index_fp4, f32");
  rows.index_keys = false;
  REQUIRE_OK(supports(rows));
  SparseAttentionParams attention;
  attention.window.format = RowFormat::kPacked;
  attention.compressed.format = RowFormat::kIndexFp4;
  REQUIRE_OK(supports(attention));
  attention.ratio = 4;
  REQUIRE_FAILS(supports(attention), absl::StatusCode::kUnimplemented,
                "compressed rows in format index_fp4; supported: packed, bf16, f32, "
                "fp8_per_tensor");
}

}  // namespace
}  // namespace dsv4
