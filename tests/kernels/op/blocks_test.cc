// SPDX-License-Identifier: Apache-2.0
// Products of a backend with weights in every block format against plain arithmetic on LoadBlocks'
// values, from stored weights to outputs; the other operators with such weights against the
// reference; and the row rule bit for bit.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/op/dense.h"
#include "kernels/op/moe.h"
#include "tests/kernels/operator_weights.h"

namespace dsv4::test {
namespace {

constexpr BlockType kFirst = BlockType::kF32;
BlockType Next(BlockType type) { return static_cast<BlockType>(static_cast<int>(type) + 1); }

// The row as the contract rounds it in front of quantised formats, by divisions in double.
std::vector<double> Int8Rounded(const float* x, int64_t k) {
  std::vector<double> rounded;
  for (int64_t begin = 0; begin < k; begin += 32) {
    float largest = 0;
    for (int64_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[begin + i]));
    const float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
    for (int64_t i = 0; i < 32; ++i) {
      rounded.push_back(std::nearbyint(x[begin + i] * inverse) * double{scale});
    }
  }
  return rounded;
}

struct Sums {
  std::vector<double> value, bound;
};

Sums TrueSums(const BlockStorage& w, const std::vector<float>& x) {
  std::vector<float> values(static_cast<size_t>(w.n * w.k));
  LoadBlocks(w.type, w.view().data, w.n * w.k, values.data());
  Sums sums;
  for (int64_t first = 0; first < static_cast<int64_t>(x.size()); first += w.k) {
    std::vector<double> row(x.begin() + first, x.begin() + first + w.k);
    if (IsQuantised(w.type)) row = Int8Rounded(&x[static_cast<size_t>(first)], w.k);
    for (int64_t j = 0; j < w.n; ++j) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < w.k; ++p) {
        const double term = row[static_cast<size_t>(p)] * values[static_cast<size_t>(j * w.k + p)];
        sum += term;
        size += std::fabs(term);
      }
      sums.value.push_back(sum);
      // Minima are a sum of their own, which may be larger than the difference.
      sums.bound.push_back(size * (InfoOf(w.type).has_min() ? 1e-4 : 1e-5) + 1e-12);
    }
  }
  return sums;
}

// The outputs of each part, in f32.
std::vector<std::vector<float>> Run(const std::vector<const SideWeight*>& weights,
                                    const std::vector<float>& x, int threads) {
  LinearBf16Params p;
  p.k = weights[0]->k();
  p.rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / p.k);
  const Acts in(On::kTested, x);
  p.x = in.data();
  p.part_count = static_cast<int32_t>(weights.size());
  std::vector<Array<float>> y;
  for (const SideWeight* w : weights) y.emplace_back(On::kTested, p.rows * w->n());
  for (size_t i = 0; i < y.size(); ++i) p.parts[i] = {weights[i]->bf16(), y[i].data(), false};
  Launch(On::kTested, p, threads);
  std::vector<std::vector<float>> out;
  for (const Array<float>& part : y) out.push_back(part.Get());
  return out;
}

void CheckProducts(const BlockStorage& stored, const std::vector<float>& x,
                   std::initializer_list<int32_t> row_counts) {
  const int64_t k = stored.k, rows = static_cast<int64_t>(x.size()) / k;
  const Sums truth = TrueSums(stored, x);
  const SideWeight weight(On::kTested, stored);
  ForEachVariant([&] {
    const std::vector<float> y = Run({&weight}, x, 2)[0];
    for (size_t i = 0; i < y.size(); ++i) {
      INFO(InfoOf(stored.type).name << " [" << stored.n << ", " << k << "], row "
                                    << static_cast<int64_t>(i) / stored.n << " output "
                                    << static_cast<int64_t>(i) % stored.n << ": " << y[i] << " for "
                                    << truth.value[i]);
      if (!(std::fabs(y[i] - truth.value[i]) <= truth.bound[i])) FAIL();
    }
    for (const int32_t m : row_counts) {
      for (const int64_t first : {int64_t{0}, rows - m}) {
        INFO(InfoOf(stored.type).name << ": " << m << " rows from " << first);
        RequireSlice(Run({&weight}, Slice(x, first * k, m * k), 1 + m % 3)[0],
                     Slice(y, first * stored.n, m * stored.n), 0);
      }
    }
  });
}

TEST_CASE("products of every block format are those of its values") {
  constexpr int64_t kRows = 67, kK = 512;
  std::vector<float> x = RandomActs(3, kRows, kK);
  std::fill_n(x.begin() + 3 * kK + 64, 32, 0.0f);  // a run of zeros
  for (BlockType type = kFirst; type != BlockType::kCount; type = Next(type)) {
    CheckProducts(BlockStorage(4, 37, kK, type), x, {1, 2, 3, 4, 5, 6, 7, 9, 64});
  }
}

TEST_CASE("products of block formats hold at other widths") {
  // Part of the last segment is missing; one chunk of it is there; rows that are seldom so wide.
  for (const int64_t k : {int64_t{128}, int64_t{384}, int64_t{640}, int64_t{16384}}) {
    const std::vector<float> x = RandomActs(5, k > 1000 ? 9 : 17, k);
    for (const BlockType type : {BlockType::kQ8_0, BlockType::kMxfp4, BlockType::kNvfp4,
                                 BlockType::kQ5_1, BlockType::kF32, BlockType::kF16}) {
      CheckProducts(BlockStorage(6, 20, k, type), x, {1, 8, 9});
    }
  }
  CheckProducts(BlockStorage(7, 300, 4096, BlockType::kIq2Xxs), RandomActs(8, 3, 4096), {1, 2});
  // Enough tiles of 64 x 64 for any GPU to take its kernels of many rows.
  for (const BlockType type : {BlockType::kF32, BlockType::kF16, BlockType::kBf16}) {
    const int64_t k = type == BlockType::kF16 ? 384 : 128;
    CheckProducts(BlockStorage(11, 610, k, type), RandomActs(12, 660, k), {1, 8, 33});
  }
}

TEST_CASE("parts of several formats share the input") {
  constexpr int64_t kK = 256, kN = 16;
  const std::vector<float> x = RandomActs(9, 9, kK);
  std::vector<SideWeight> weights;
  for (const BlockType type :
       {BlockType::kQ8_0, BlockType::kBf16, BlockType::kQ4K, BlockType::kQ8_0, BlockType::kF16}) {
    weights.emplace_back(On::kTested, BlockStorage(10 + weights.size(), kN, kK, type));
  }
  for (const int32_t rows : {1, 9}) {
    const std::vector<float> some = Slice(x, 0, rows * kK);
    const auto all =
        Run({&weights[0], &weights[1], &weights[2], &weights[3], &weights[4]}, some, 2);
    for (size_t i = 0; i < 5; ++i) RequireSlice(all[i], Run({&weights[i]}, some, 1)[0], 0);
  }
}

TEST_CASE("embedding rows in blocks are rounded to bf16") {
  constexpr int64_t kVocab = 5, kDim = 512;
  for (BlockType type = kFirst; type != BlockType::kCount; type = Next(type)) {
    const BlockStorage stored(6, kVocab, kDim, type);
    std::vector<float> values(static_cast<size_t>(kVocab * kDim));
    LoadBlocks(type, stored.view().data, kVocab * kDim, values.data());
    const std::vector<int32_t> tokens = {4, 0, 4};
    const Array<int32_t> on_side(On::kTested, tokens);
    const SideWeight weight(On::kTested, stored);
    const Acts out(On::kTested, 3 * 4 * kDim);
    Launch(On::kTested, EmbedRowsParams{.rows = 3,
                                        .copies = 4,
                                        .tokens = on_side.data(),
                                        .embed = weight.bf16(),
                                        .out = out.data()});
    const std::vector<float> got = out.Get();
    for (size_t i = 0; i < got.size(); ++i) {
      INFO(InfoOf(type).name << " element " << i);
      const auto row = static_cast<size_t>(tokens[i / (4 * kDim)]);
      REQUIRE(got[i] == RoundToBf16(values[row * kDim + i % kDim]));
    }
  }
}

std::vector<float> RunGroups(On on, const std::vector<float>& o, int32_t groups,
                             const BlockStorage& stored, bool quantise) {
  const SideWeight w(on, stored);
  const Acts in(on, o);
  OutputGroupsParams p{.groups = groups};
  p.rank = w.n() / groups;
  p.group_width = w.k();
  p.rows = static_cast<int32_t>(static_cast<int64_t>(o.size()) / (groups * w.k()));
  const QuantizedActs quantised(on, p.rows, w.n());
  const Acts plain(on, p.rows * w.n());
  p.wo_a = w.fp8();
  p.o = in.data();
  p.y = quantise ? quantised.data() : plain.data();
  p.quantise = quantise;
  Launch(on, p, 1 + p.rows % 3);
  return quantise ? quantised.Get() : plain.Get();
}

TEST_CASE("output_groups multiplies weights in blocks, and quantises where that is asked") {
  constexpr int32_t kGroups = 3, kRows = 21;
  constexpr int64_t kRank = 128, kWidth = 512;
  const std::vector<float> o = RandomActs(31, kRows, kGroups * kWidth);
  for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ2K, BlockType::kQ6K,
                               BlockType::kIq4Nl, BlockType::kIq2Xxs, BlockType::kBf16}) {
    const BlockStorage stored(32, kGroups * kRank, kWidth, type);
    for (const bool quantise : {false, true}) {
      INFO(InfoOf(type).name << (quantise ? ", quantised" : ""));
      const std::vector<float> want = RunGroups(On::kReference, o, kGroups, stored, quantise);
      ForEachVariant([&] {
        const std::vector<float> all = RunGroups(On::kTested, o, kGroups, stored, quantise);
        if (quantise) {
          RequireQuantizedShare(all, want, 2 + all.size() / 1000);
        } else {
          RequireSameSums(all, want, kGroups * kRank);
        }
        for (const int64_t rows : {1, 8, 9}) {
          RequireSlice(RunGroups(On::kTested, Slice(o, kGroups * kWidth, rows * kGroups * kWidth),
                                 kGroups, stored, quantise),
                       all, kGroups * kRank);
        }
      });
    }
  }
}

struct Chosen {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};
Chosen RunGate(On on, const BlockStorage& stored, const std::vector<float>& x) {
  constexpr int32_t kChosen = 4;
  const SideWeight gate(on, stored);
  const auto rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / stored.k);
  const Acts in(on, x);
  const Array<float> bias(on, RandomFloats(43, stored.n, 0.5f)), weights(on, rows * kChosen);
  const Array<int32_t> experts(on, rows * kChosen);
  Launch(on,
         MoeGateParams{.rows = rows,
                       .experts_per_token = kChosen,
                       .gate = gate.bf16(),
                       .x = in.data(),
                       .bias = bias.data(),
                       .routed_scale = 1.5f,
                       .experts = experts.data(),
                       .weights = weights.data()},
         1 + rows % 3);
  return {experts.Get(), weights.Get()};
}

TEST_CASE("moe_gate chooses by a gate in blocks") {
  constexpr int64_t kRows = 40, kExperts = 37, kHidden = 256;
  const std::vector<float> x = RandomActs(47, kRows, kHidden);
  for (const BlockType type : {BlockType::kF32, BlockType::kF16, BlockType::kQ8_0}) {
    INFO(InfoOf(type).name);
    const BlockStorage stored(44, kExperts, kHidden, type, 0.01f);
    const Chosen want = RunGate(On::kReference, stored, x);
    ForEachVariant([&] {
      const Chosen all = RunGate(On::kTested, stored, x);
      REQUIRE(all.experts == want.experts);
      REQUIRE(FarElements(all.weights, want.weights, {.relative = 1e-5, .absolute = 1e-9}) == "");
      for (const int64_t rows : {1, 9}) {
        const Chosen part = RunGate(On::kTested, stored, Slice(x, 3 * kHidden, rows * kHidden));
        RequireSlice(part.experts, all.experts, 3 * 4);
        RequireSlice(part.weights, all.weights, 3 * 4);
      }
    });
  }
}

}  // namespace
}  // namespace dsv4::test
