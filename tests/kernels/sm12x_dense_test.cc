// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's linears against the reference in published numerics, from stored weights to
// outputs, and the row rule bit for bit: over the edges between kernels, too.
#include "kernels/op/dense.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/cuda_matrix.h"
#include "tests/kernels/kernel_launch.h"

namespace dsv4::test {
namespace {

constexpr int32_t kRows = 192;
constexpr int32_t kRowCounts[] = {1, 2, 3, 6, 8, 9, 16, 17, 48, 64, 65, 127};
const LaunchOptions kPublished{.numerics = Numerics::kPublished, .threads = 2};

// Some rows in the middle, so that a row's place in the call changes.
int64_t FirstRow(int32_t rows) { return (kRows - rows) / 2; }

struct Fp8Case {
  int64_t k;
  std::vector<int64_t> widths;  // n of each part
};

template <class Cuda>
std::vector<std::vector<uint16_t>> LinearFp8OnCuda(const QuantizedRows& x, int64_t first,
                                                   int32_t rows, const std::vector<Cuda>& w) {
  const DeviceCopy<uint8_t> input(x.Bytes(first, rows));
  LinearFp8Params p;
  p.rows = rows;
  p.k = w[0].k;
  p.x = input.data();
  p.part_count = static_cast<int32_t>(w.size());
  std::vector<DeviceCopy<uint16_t>> y;
  for (const Cuda& part : w) y.emplace_back(rows * part.n);
  for (size_t i = 0; i < w.size(); ++i) p.parts[i] = {w[i].view(), y[i].data()};
  LaunchCuda(p);
  std::vector<std::vector<uint16_t>> out;
  for (const auto& part : y) {
    REQUIRE(part.Intact());
    out.push_back(part.Download());
  }
  return out;
}

template <class Storage, class Cuda>
void CheckLinearFp8(std::initializer_list<Fp8Case> cases) {
  for (const Fp8Case& c : cases) {
    INFO("k " << c.k);
    const QuantizedRows x(11, kRows, c.k);
    std::vector<Cuda> weights;
    std::vector<Storage> stored;
    for (const int64_t n : c.widths) stored.emplace_back(12 + n, n, c.k);
    for (const Storage& w : stored) weights.emplace_back(w);
    const auto all = LinearFp8OnCuda(x, 0, kRows, weights);
    for (size_t i = 0; i < stored.size(); ++i) {
      INFO("part " << i);
      std::vector<float> expected(kRows * stored[i].n, NAN);
      LinearFp8Params p;
      p.rows = kRows;
      p.k = c.k;
      p.x = x.values.data();
      p.part_count = 1;
      p.parts[0] = {stored[i].view(), expected.data()};
      LaunchKernel(ReferenceManifest(), p, kPublished);
      RequireSameSums(all[i], expected);
    }
    for (const int32_t rows : kRowCounts) {
      INFO(rows << " rows");
      const auto part = LinearFp8OnCuda(x, FirstRow(rows), rows, weights);
      for (size_t i = 0; i < stored.size(); ++i) {
        RequireSameBits(part[i], all[i], FirstRow(rows) * stored[i].n);
      }
    }
  }
}

TEST_CASE("sm12x linear_fp8 equals the reference and keeps the row rule") {
  // In the last shape a block takes several sets of tiles, and one set has tiles of both parts.
  CheckLinearFp8<Fp8Storage, CudaFp8>({{128, {5}},
                                       {256, {16, 200}},
                                       {640, {33}},
                                       {1024, {520, 64, 144}},
                                       {1536, {128}},
                                       {4096, {130, 64}},
                                       {8192, {48}},
                                       {16384, {16}},
                                       {128, {50000, 9992}}});
}

TEST_CASE("sm12x linear_fp8 runs F32 scales by the same rules") {
  CheckLinearFp8<Fp8F32Storage, CudaFp8F32>({{256, {16, 200}}, {1024, {144}}});
}

struct Bf16Outputs {
  std::vector<std::vector<uint16_t>> rounded;
  std::vector<std::vector<float>> plain;
};

// Every weight twice: with rounded and with f32 outputs.
Bf16Outputs LinearBf16OnCuda(const Bf16Rows& x, int64_t first, int32_t rows,
                             const std::vector<CudaBf16>& w) {
  const DeviceCopy<uint16_t> input(x.Bits(first, rows));
  LinearBf16Params p;
  p.rows = rows;
  p.k = w[0].k;
  p.x = input.data();
  p.part_count = static_cast<int32_t>(2 * w.size());
  std::vector<DeviceCopy<uint16_t>> rounded;
  std::vector<DeviceCopy<float>> plain;
  for (const CudaBf16& part : w) {
    rounded.emplace_back(rows * part.n);
    plain.emplace_back(rows * part.n);
  }
  for (size_t i = 0; i < w.size(); ++i) {
    p.parts[2 * i] = {w[i].view(), rounded[i].data(), true};
    p.parts[2 * i + 1] = {w[i].view(), plain[i].data(), false};
  }
  LaunchCuda(p);
  Bf16Outputs out;
  for (size_t i = 0; i < w.size(); ++i) {
    REQUIRE(rounded[i].Intact());
    REQUIRE(plain[i].Intact());
    out.rounded.push_back(rounded[i].Download());
    out.plain.push_back(plain[i].Download());
  }
  return out;
}

TEST_CASE("sm12x linear_bf16 equals the reference and keeps the row rule") {
  const Fp8Case cases[] = {
      {128, {7}}, {384, {64, 24}}, {1024, {144}}, {4096, {100, 64}}, {7168, {32}}};
  for (const Fp8Case& c : cases) {
    INFO("k " << c.k);
    const Bf16Rows x(21, kRows, c.k);
    std::vector<CudaBf16> weights;
    std::vector<Bf16Storage> stored;
    for (const int64_t n : c.widths) stored.emplace_back(22 + n, n, c.k);
    for (const Bf16Storage& w : stored) weights.emplace_back(w);
    const Bf16Outputs all = LinearBf16OnCuda(x, 0, kRows, weights);
    for (size_t i = 0; i < stored.size(); ++i) {
      INFO("part " << i);
      std::vector<float> expected(kRows * stored[i].n, NAN);
      LinearBf16Params p;
      p.rows = kRows;
      p.k = c.k;
      p.x = x.values.data();
      p.part_count = 1;
      p.parts[0] = {stored[i].view(), expected.data(), false};
      LaunchKernel(ReferenceManifest(), p, kPublished);
      RequireSameSums(all.rounded[i], expected);
      RequireSameSums(all.plain[i], expected);
    }
    for (const int32_t rows : kRowCounts) {
      INFO(rows << " rows");
      const Bf16Outputs part = LinearBf16OnCuda(x, FirstRow(rows), rows, weights);
      for (size_t i = 0; i < stored.size(); ++i) {
        RequireSameBits(part.rounded[i], all.rounded[i], FirstRow(rows) * stored[i].n);
        RequireSameBits(part.plain[i], all.plain[i], FirstRow(rows) * stored[i].n);
      }
    }
  }
}

std::vector<uint8_t> OutputGroupsOnCuda(const Bf16Rows& o, int64_t first, int32_t rows,
                                        OutputGroupsParams p) {
  const DeviceCopy<uint16_t> input(o.Bits(first, rows));
  DeviceCopy<uint8_t> y(rows * sm12x::QuantizedRowBytes(p.groups * p.rank));
  p.rows = rows;
  p.o = input.data();
  p.y = y.data();
  LaunchCuda(p);
  REQUIRE(y.Intact());
  return y.Download();
}

struct GroupsCase {
  int32_t groups;
  int64_t rank, width;
};
template <class Storage, class Cuda>
void CheckOutputGroups(std::initializer_list<GroupsCase> cases) {
  for (const GroupsCase& c : cases) {
    INFO(c.groups << " groups of " << c.width);
    const int64_t out = c.groups * c.rank;
    const Bf16Rows o(31, kRows, c.groups * c.width);
    const Storage stored(32, out, c.width);
    const Cuda weight(stored);
    OutputGroupsParams p;
    p.groups = c.groups;
    p.rank = c.rank;
    p.group_width = c.width;
    p.wo_a = weight.view();
    const std::vector<uint8_t> all = OutputGroupsOnCuda(o, 0, kRows, p);

    std::vector<float> expected(kRows * out, NAN);
    OutputGroupsParams truth = p;
    truth.rows = kRows;
    truth.wo_a = stored.view();
    truth.o = o.values.data();
    truth.y = expected.data();
    LaunchKernel(ReferenceManifest(), truth, kPublished);
    const std::vector<float> got = DequantizedRows(all, kRows, out);
    size_t apart = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == expected[i]) continue;
      ++apart;  // a bf16 step in front of the quantiser that became a step of e4m3
      if (std::abs(got[i] - expected[i]) <= 0.13f * std::abs(expected[i]) + 1e-6f) continue;
      FAIL("element " << i << ": " << got[i] << ", expected " << expected[i]);
    }
    INFO(apart << " of " << got.size() << " elements are apart");
    REQUIRE(apart <= 2 + got.size() / 10000);

    const int64_t stride = sm12x::QuantizedRowBytes(out);
    for (const int32_t rows : kRowCounts) {
      INFO(rows << " rows");
      const auto part = OutputGroupsOnCuda(o, FirstRow(rows), rows, p);
      for (int64_t r = 0; r < rows; ++r) {  // without what pads a row
        const int64_t at = (FirstRow(rows) + r) * stride;
        REQUIRE(std::memcmp(&part[static_cast<size_t>(r * stride)], &all[static_cast<size_t>(at)],
                            static_cast<size_t>(out + out / 128)) == 0);
      }
    }
  }
}

TEST_CASE("sm12x output_groups equals the reference and keeps the row rule") {
  CheckOutputGroups<Fp8Storage, CudaFp8>(
      {{1, 128, 128}, {2, 256, 512}, {8, 128, 1024}, {2, 128, 4096}});
}

TEST_CASE("sm12x output_groups rounds weights under F32 scales to bf16") {
  CheckOutputGroups<Fp8F32Storage, CudaFp8F32>({{2, 256, 512}});
}

}  // namespace
}  // namespace dsv4::test
