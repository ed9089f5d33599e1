// SPDX-License-Identifier: Apache-2.0
// The linears and output groups of a backend against the reference in published numerics, from
// stored weights to outputs, with extreme scales and values; and the row rule bit for bit: over the
// edges between kernels, too.
#include "kernels/op/dense.h"
#include "tests/kernels/operator_weights.h"

namespace dsv4::test {
namespace {

constexpr int32_t kRows = 192;
constexpr int32_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 48, 64, 65, 127};

// Some rows in the middle, so that a row's place in the call changes.
int64_t FirstRow(int64_t all, int32_t rows) { return (all - rows) / 2; }

using Parts = std::vector<std::vector<float>>;  // outputs, by part

template <class Storage>
std::vector<SideWeight> OnSide(On on, const std::vector<Storage>& stored) {
  std::vector<SideWeight> weights;
  for (const Storage& w : stored) weights.emplace_back(on, w);
  return weights;
}

Parts RunFp8(On on, const std::vector<float>& x, const std::vector<SideWeight>& weights) {
  const int64_t k = weights[0].k();
  const QuantizedActs in(on, k, x);
  LinearFp8Params p;
  p.rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / k);
  p.k = k;
  p.x = in.data();
  p.part_count = static_cast<int32_t>(weights.size());
  std::vector<Acts> y;
  for (const SideWeight& w : weights) y.emplace_back(on, p.rows * w.n());
  for (size_t i = 0; i < y.size(); ++i) p.parts[i] = {weights[i].fp8(), y[i].data()};
  Launch(on, p, 1 + p.rows % 3);
  Parts out;
  for (const Acts& part : y) out.push_back(part.Get());
  return out;
}

// `x`: [rows, k], quantised on the way.
template <class Storage>
void CheckFp8(const std::vector<Storage>& stored, const std::vector<float>& x) {
  const int64_t k = stored[0].k, all_rows = static_cast<int64_t>(x.size()) / k;
  INFO("k " << k);
  const Parts want = RunFp8(On::kReference, x, OnSide(On::kReference, stored));
  const std::vector<SideWeight> weights = OnSide(On::kTested, stored);
  ForEachVariant([&] {
    const Parts all = RunFp8(On::kTested, x, weights);
    for (size_t i = 0; i < stored.size(); ++i) {
      INFO("part " << i);
      RequireSameSums(all[i], want[i], stored[i].n);
    }
    for (const int32_t rows : kRowCounts) {
      if (rows > all_rows) continue;
      INFO(rows << " rows");
      const int64_t first = FirstRow(all_rows, rows);
      const Parts part = RunFp8(On::kTested, Slice(x, first * k, rows * k), weights);
      for (size_t i = 0; i < stored.size(); ++i) {
        RequireSlice(part[i], all[i], first * stored[i].n);
      }
    }
  });
}

struct LinearCase {
  int64_t k;
  std::vector<int64_t> widths;  // n of each part
};
template <class Storage>
void CheckFp8Cases(std::initializer_list<LinearCase> cases) {
  for (const LinearCase& c : cases) {
    std::vector<Storage> stored;
    for (const int64_t n : c.widths) stored.emplace_back(12 + n, n, c.k);
    CheckFp8(stored, RandomActs(11, kRows, c.k));
  }
}

TEST_CASE("linear_fp8 equals the reference and keeps the row rule") {
  // In the last shape a block takes several sets of tiles, and one set has tiles of both parts.
  CheckFp8Cases<Fp8Storage>({{128, {5}},
                             {256, {16, 200}},
                             {640, {33}},
                             {1024, {520, 64, 144}},
                             {1536, {128}},
                             {4096, {130, 64}},
                             {8192, {48}},
                             {16384, {16}},
                             {128, {50000, 9992}}});
}

TEST_CASE("linear_fp8 runs F32 scales by the same rules") {
  CheckFp8Cases<Fp8F32Storage>({{256, {16, 200}}, {1024, {144}}, {128, {140}}, {1536, {300}}});
}

TEST_CASE("linear_fp8 loses no subnormal weight") {
  Fp8Storage w(3, 33, 256);
  for (uint8_t& byte : w.data) byte &= 0x87;
  CheckFp8<Fp8Storage>({w}, RandomActs(4, 9, 256));
}

TEST_CASE("linear_fp8 holds at extreme scales") {
  Fp8Storage w(5, 140, 512);
  const auto check = [&](int exponent) {
    std::vector<float> x = RandomActs(6, 9, 512);
    for (float& value : x) value = RoundToBf16(std::ldexp(value, exponent));
    CheckFp8<Fp8Storage>({w}, x);
  };
  uint8_t next = 0;
  SECTION("all tiny") {
    for (uint8_t& byte : w.scale) byte = next++ % 3;
    check(100);
  }
  SECTION("all huge") {
    for (uint8_t& byte : w.scale) byte = static_cast<uint8_t>(230 - next++ % 3);
    check(-12);
  }
  SECTION("far apart in one row: the small one is nothing") {
    w.scale = {1, 127, 1, 60, 200, 180, 200, 127};
    check(0);
  }
  SECTION("far apart in one row: the small one is all") {
    w.scale = {1, 200, 1, 1, 5, 254, 5, 5};
    for (int64_t o = 0; o < w.n; ++o) std::fill_n(&w.data[o * 512 + 128], 128, uint8_t{0});
    check(100);
  }
  SECTION("on both sides of where scales fold into the weights") {
    w.scale = {127 + 48, 127 - 48, 127 + 48, 127, 127 + 49, 127 - 48, 127, 127 - 49};
    check(0);
  }
}

TEST_CASE("linear_fp8 passes NaN on to its outputs alone") {
  Fp8Storage w(7, 20, 128);
  w.data[7 * 128 + 100] = 0xff;
  const std::vector<SideWeight> weights = OnSide(On::kTested, std::vector<Fp8Storage>{w});
  for (const int32_t rows : {1, 9}) {
    ForEachVariant([&] {
      const std::vector<float> y = RunFp8(On::kTested, RandomActs(8, rows, 128), weights)[0];
      for (size_t i = 0; i < y.size(); ++i) {
        INFO(rows << " rows, element " << i);
        REQUIRE(std::isnan(y[i]) == (i % 20 == 7));
      }
    });
  }
}

// Every weight twice: with rounded and with f32 outputs.
struct Bf16Outputs {
  Parts rounded, plain;
};

Bf16Outputs RunBf16(On on, const std::vector<float>& x, const std::vector<SideWeight>& weights) {
  const int64_t k = weights[0].k();
  const Acts in(on, x);
  LinearBf16Params p;
  p.rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / k);
  p.k = k;
  p.x = in.data();
  p.part_count = static_cast<int32_t>(2 * weights.size());
  std::vector<Acts> rounded;
  std::vector<Array<float>> plain;
  for (const SideWeight& w : weights) {
    rounded.emplace_back(on, p.rows * w.n());
    plain.emplace_back(on, p.rows * w.n());
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    p.parts[2 * i] = {weights[i].bf16(), rounded[i].data(), true};
    p.parts[2 * i + 1] = {weights[i].bf16(), plain[i].data(), false};
  }
  Launch(on, p, 1 + p.rows % 3);
  Bf16Outputs out;
  for (const Acts& part : rounded) out.rounded.push_back(part.Get());
  for (const Array<float>& part : plain) out.plain.push_back(part.Get());
  return out;
}

TEST_CASE("linear_bf16 equals the reference and keeps the row rule") {
  for (const LinearCase& c : {LinearCase{128, {7}},
                              {128, {131}},
                              {384, {64, 24}},
                              {1024, {144}},
                              {4096, {100, 64}},
                              {7168, {32}}}) {
    INFO("k " << c.k);
    std::vector<Bf16Storage> stored;
    for (const int64_t n : c.widths) stored.emplace_back(22 + n, n, c.k);
    const std::vector<float> x = RandomActs(21, kRows, c.k);
    const Bf16Outputs want = RunBf16(On::kReference, x, OnSide(On::kReference, stored));
    const std::vector<SideWeight> weights = OnSide(On::kTested, stored);
    ForEachVariant([&] {
      const Bf16Outputs all = RunBf16(On::kTested, x, weights);
      for (size_t i = 0; i < stored.size(); ++i) {
        INFO("part " << i);
        RequireSameSums(all.rounded[i], want.plain[i], stored[i].n);
        RequireSameF32Sums(all.plain[i], want.plain[i], stored[i].n);
      }
      for (const int32_t rows : kRowCounts) {
        INFO(rows << " rows");
        const int64_t first = FirstRow(kRows, rows);
        const Bf16Outputs part = RunBf16(On::kTested, Slice(x, first * c.k, rows * c.k), weights);
        for (size_t i = 0; i < stored.size(); ++i) {
          RequireSlice(part.rounded[i], all.rounded[i], first * stored[i].n);
          RequireSlice(part.plain[i], all.plain[i], first * stored[i].n);
        }
      }
    });
  }
}

std::vector<float> RunGroups(On on, const std::vector<float>& o, int32_t groups,
                             const SideWeight& w) {
  const Acts in(on, o);
  OutputGroupsParams p;
  p.groups = groups;
  p.rank = w.n() / groups;
  p.group_width = w.k();
  p.rows = static_cast<int32_t>(static_cast<int64_t>(o.size()) / (groups * w.k()));
  const QuantizedActs y(on, p.rows, w.n());
  p.wo_a = w.fp8();
  p.o = in.data();
  p.y = y.data();
  Launch(on, p, 1 + p.rows % 3);
  return y.Get();
}

struct GroupsCase {
  int32_t groups;
  int64_t rank, width;
};
template <class Storage>
void CheckGroups(std::initializer_list<GroupsCase> cases) {
  for (const GroupsCase& c : cases) {
    INFO(c.groups << " groups of " << c.width);
    const int64_t out = c.groups * c.rank, width = c.groups * c.width;
    const std::vector<float> o = RandomActs(31, kRows, width);
    const Storage stored(32, out, c.width);
    const std::vector<float> want =
        RunGroups(On::kReference, o, c.groups, SideWeight(On::kReference, stored));
    const SideWeight weight(On::kTested, stored);
    ForEachVariant([&] {
      const std::vector<float> all = RunGroups(On::kTested, o, c.groups, weight);
      RequireQuantizedShare(all, want, 2 + all.size() / 10000);
      for (const int32_t rows : kRowCounts) {
        INFO(rows << " rows");
        const int64_t first = FirstRow(kRows, rows);
        RequireSlice(
            RunGroups(On::kTested, Slice(o, first * width, rows * width), c.groups, weight), all,
            first * out);
      }
    });
  }
}

TEST_CASE("output_groups equals the reference and keeps the row rule") {
  CheckGroups<Fp8Storage>(
      {{1, 128, 128}, {2, 256, 512}, {3, 128, 512}, {8, 128, 1024}, {2, 128, 4096}});
}

TEST_CASE("output_groups rounds weights under F32 scales to bf16") {
  CheckGroups<Fp8F32Storage>({{2, 256, 512}, {3, 128, 512}});
}

// With the identity for a weight the output is the quantised input.
TEST_CASE("output_groups quantises bit for bit") {
  Fp8Storage identity(8, 128, 128);
  std::fill(identity.data.begin(), identity.data.end(), uint8_t{0});
  for (size_t i = 0; i < 128; ++i) identity.data[i * 128 + i] = 0x38;
  identity.scale = {127};
  std::vector<float> o;
  for (uint64_t t = 0; t < 400; ++t) {
    // Rows from far below the floor of the scale to far above 1; each a dense walk over bf16
    // values, so that ties, subnormals and clamped values all occur.
    const int top = static_cast<int>(Hash(t) % 60) + 95;
    for (uint64_t i = 0; i < 128; ++i) {
      const uint64_t word = Hash(1000 + t * 128 + i);
      const int exponent = std::max(1, top - static_cast<int>(word % 20));
      o.push_back(Bf16ToFloat(
          static_cast<uint16_t>((word >> 63) << 15 | exponent << 7 | (word >> 20 & 127))));
    }
  }
  std::vector<float> want = o;
  ActQuant(want.data(), static_cast<int64_t>(want.size()), 128);
  const SideWeight weight(On::kTested, identity);
  ForEachVariant([&] { REQUIRE(FarElements(RunGroups(On::kTested, o, 1, weight), want) == ""); });
}

}  // namespace
}  // namespace dsv4::test
