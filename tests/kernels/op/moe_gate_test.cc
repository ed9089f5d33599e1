// SPDX-License-Identifier: Apache-2.0
// moe_gate of a backend against the reference in published numerics, and the row rule bit for bit.
#include <algorithm>

#include "kernels/op/moe.h"
#include "tests/kernels/operator_weights.h"

namespace dsv4::test {
namespace {

struct Gate {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

// What a gate has beside its weight and its rows, on the host.
struct GateCase {
  int32_t k = 0;
  float routed_scale = 1;
  std::vector<float> bias{};     // of a scored layer
  std::vector<int32_t> table{};  // of a hash-routed layer
};

Gate RunGate(On on, const GateCase& c, const SideWeight& weight, const std::vector<float>& x,
             const std::vector<int32_t>& tokens = {}, const std::vector<int32_t>& sequence_of = {},
             ExpertCounts* counts = nullptr, uint32_t* calls = nullptr) {
  const auto rows = static_cast<int32_t>(static_cast<int64_t>(x.size()) / weight.k());
  const Acts in(on, x);
  const Array<float> bias(on, c.bias), weights(on, rows * c.k);
  const Array<int32_t> table(on, c.table), token_rows(on, tokens), sequences(on, sequence_of),
      experts(on, rows * c.k);
  const bool hashed = !c.table.empty();
  Launch(on,
         MoeGateParams{.rows = rows,
                       .experts_per_token = c.k,
                       .gate = weight.bf16(),
                       .x = in.data(),
                       .tokens = hashed ? token_rows.data() : nullptr,
                       .sequence_of = sequence_of.empty() ? nullptr : sequences.data(),
                       .tid2eid = hashed ? table.data() : nullptr,
                       .bias = hashed ? nullptr : bias.data(),
                       .routed_scale = c.routed_scale,
                       .experts = experts.data(),
                       .weights = weights.data(),
                       .counts = counts,
                       .calls = calls},
         1 + rows % 3);
  return {experts.Get(), weights.Get()};
}

TEST_CASE("moe_gate chooses and weighs as the reference, whatever the rows") {
  constexpr int32_t kRows = 257;
  struct Shape {
    int64_t experts, hidden;
    int32_t k;
  };
  for (const Shape& shape : {Shape{5, 128, 5}, Shape{37, 256, 4}, Shape{40, 768, 4},
                             Shape{256, 4096, 6}, Shape{384, 512, 8}}) {
    INFO(shape.experts << " experts");
    // No row's best experts are closer than 7e-6 of their scores, so that no noise changes places.
    const std::vector<float> x = RandomActs(47, kRows, shape.hidden);
    Bf16Storage stored(42, shape.experts, shape.hidden);
    // Logits near 1: the scores of very negative ones have the relative error of the logits' noise.
    for (uint16_t& w : stored.data) w = FloatToBf16(Bf16ToFloat(w) / 64);
    const SideWeight weight(On::kTested, stored);
    std::vector<int32_t> tokens;
    for (int32_t t = 0; t < kRows; ++t) tokens.push_back(t * 5 % 11);
    for (const bool hashed : {false, true}) {
      INFO((hashed ? "hashed" : "scored"));
      GateCase c{.k = shape.k, .routed_scale = 1.5f};
      if (!hashed) c.bias = RandomFloats(43, shape.experts, 0.5f);
      for (int64_t i = 0; hashed && i < 11 * shape.k; ++i) {
        c.table.push_back(static_cast<int32_t>((i * 7 + i / shape.k) % shape.experts));
      }
      const Gate want = RunGate(On::kReference, c, SideWeight(On::kReference, stored), x, tokens);
      ForEachVariant([&] {
        const Gate all = RunGate(On::kTested, c, weight, x, tokens);
        REQUIRE(all.experts == want.experts);
        REQUIRE(FarElements(all.weights, want.weights, {.relative = 6e-6, .absolute = 1e-9}) == "");
        for (const int32_t rows : {1, 2, 3, 6, 8, 16, 17, 33, 48, 64, 65, 256}) {
          INFO(rows << " rows");
          const int64_t first = kRows - rows;
          const Gate part =
              RunGate(On::kTested, c, weight, Slice(x, first * shape.hidden, rows * shape.hidden),
                      Slice(tokens, first, rows));
          RequireSlice(part.experts, all.experts, first * c.k);
          RequireSlice(part.weights, all.weights, first * c.k);
        }
        if (Tested().host_memory) return;  // has no padding rows
        Gate padded = all;
        std::vector<int32_t> sequence_of;
        for (int32_t row = 0; row < kRows; ++row) {
          sequence_of.push_back(row % 7 == 3 ? -1 : row / 50);
          if (row % 7 != 3) continue;
          std::fill_n(padded.experts.begin() + int64_t{row} * c.k, c.k, -1);
          std::fill_n(padded.weights.begin() + int64_t{row} * c.k, c.k, 0.0f);
        }
        const Gate got = RunGate(On::kTested, c, weight, x, tokens, sequence_of);
        RequireSlice(got.experts, padded.experts, 0);
        RequireSlice(got.weights, padded.weights, 0);
      });
    }
  }
}

TEST_CASE("moe_gate of thousands of rows gives each what it gives few") {
  constexpr int32_t kRows = 2600, kPart = 200;
  for (const auto& [experts, hidden] : {std::pair{int64_t{40}, int64_t{512}}, {264, 128}}) {
    INFO(experts << " experts");
    const std::vector<float> x = RandomActs(49, kRows, hidden);
    const SideWeight weight(On::kTested, Bf16Storage(50, experts, hidden));
    const GateCase c{.k = 4, .bias = RandomFloats(51, experts, 0.5f)};
    ForEachVariant([&, hidden = hidden] {
      std::vector<int32_t> sequence_of(kRows);
      for (int32_t row = 0; row < kRows; row += 13) sequence_of[static_cast<size_t>(row)] = -1;
      if (Tested().host_memory) sequence_of.clear();  // has no padding rows
      const Gate all = RunGate(On::kTested, c, weight, x, {}, sequence_of);
      for (int64_t first = 0; first < kRows; first += kPart) {
        INFO("from row " << first);
        const Gate part =
            RunGate(On::kTested, c, weight, Slice(x, first * hidden, kPart * hidden), {},
                    sequence_of.empty() ? sequence_of : Slice(sequence_of, first, int64_t{kPart}));
        RequireSlice(part.experts, all.experts, first * c.k);
        RequireSlice(part.weights, all.weights, first * c.k);
      }
    });
  }
}

TEST_CASE("moe_gate breaks ties to the lowest expert and takes logits of any size") {
  Bf16Storage stored(44, 64, 128);
  for (size_t i = 0; i < stored.data.size(); ++i) {
    stored.data[i] = FloatToBf16(i / 128 % 2 == 0 ? 1.0f : -1.0f);
  }
  const SideWeight weight(On::kTested, stored);
  GateCase c{.k = 6, .routed_scale = 2.5f, .bias = std::vector<float>(64, 0.25f)};
  c.bias[40] = c.bias[3] = c.bias[63] = 1;
  const std::vector<double> equal(6, 2.5 / 6);
  ForEachVariant([&] {
    const Gate ties = RunGate(On::kTested, c, weight, std::vector<float>(128));
    REQUIRE(ties.experts == std::vector<int32_t>{3, 40, 63, 0, 1, 2});
    REQUIRE(FarElements(ties.weights, equal, {.relative = 1e-5}) == "");
    const Gate large = RunGate(On::kTested, c, weight, std::vector<float>(128, 100.0f));
    REQUIRE(large.experts == std::vector<int32_t>{40, 0, 2, 4, 6, 8});
    REQUIRE(FarElements(large.weights, equal, {.relative = 1e-5}) == "");
    // A row that is padding may hold anything; what it chooses must be experts.
    const Gate nothing = RunGate(On::kTested, c, weight, std::vector<float>(128, NAN));
    const auto [least, most] = std::minmax_element(nothing.experts.begin(), nothing.experts.end());
    REQUIRE(*least >= 0);
    REQUIRE(*most < 64);
  });
}

TEST_CASE("moe_gate counts the calls that choose an expert, not the rows") {
  if (Tested().host_memory) return;  // experts do not move
  constexpr int64_t kExperts = 37, kHidden = 256;
  constexpr int32_t kRows = 260;
  const std::vector<float> x = RandomActs(48, kRows, kHidden);
  const SideWeight weight(On::kTested, Bf16Storage(45, kExperts, kHidden));
  const GateCase c{.k = 4, .bias = RandomFloats(46, kExperts, 0.5f)};
  const Array<ExpertCounts> counts(On::kTested, std::vector<ExpertCounts>(kExperts));
  const Array<uint32_t> calls(On::kTested, std::vector<uint32_t>{0});
  const Gate without = RunGate(On::kTested, c, weight, x);
  std::vector<uint32_t> want(kExperts);
  for (const int32_t rows : {kRows, 1, 7, kRows}) {
    std::vector<int32_t> sequence_of(static_cast<size_t>(rows));
    sequence_of.back() = rows == 7 ? -1 : 0;  // padding, which chooses none
    const Gate gate = RunGate(On::kTested, c, weight, Slice(x, 0, rows * kHidden), {}, sequence_of,
                              counts.data(), calls.data());
    if (rows == kRows) REQUIRE(gate.experts == without.experts);
    std::vector<bool> chosen(kExperts);
    for (const int32_t expert : gate.experts) {
      if (expert >= 0) chosen[static_cast<size_t>(expert)] = true;
    }
    for (size_t e = 0; e < chosen.size(); ++e) want[e] += chosen[e];
  }
  std::vector<uint32_t> got;
  for (const ExpertCounts& expert : counts.Get()) got.push_back(expert.calls);
  REQUIRE(DifferentBits(got, want) == "");
  REQUIRE(calls.Get() == std::vector<uint32_t>{4});
}

}  // namespace
}  // namespace dsv4::test
