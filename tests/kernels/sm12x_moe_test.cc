// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's gate and experts against the reference in published numerics, and the row rule
// bit for bit: over the edges between kernels, too, and with rows that crowd one expert.
#include <numeric>

#include "kernels/op/moe.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/cuda_matrix.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

const LaunchOptions kPublished{.numerics = Numerics::kPublished, .threads = 2};

struct Gate {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Gate GateOnCuda(MoeGateParams p, const std::vector<uint16_t>& x, int32_t rows,
                const std::vector<int32_t>& tokens, const std::vector<int32_t>& sequence_of = {}) {
  const DeviceCopy<uint16_t> input(x);
  const DeviceCopy<int32_t> token_rows(tokens);
  DeviceCopy<int32_t> experts(rows * p.experts_per_token);
  DeviceCopy<float> weights(rows * p.experts_per_token);
  p.rows = rows;
  p.x = input.data();
  const DeviceCopy<int32_t> sequences(sequence_of);
  if (p.tid2eid != nullptr) p.tokens = token_rows.data();
  if (!sequence_of.empty()) p.sequence_of = sequences.data();
  p.experts = experts.data();
  p.weights = weights.data();
  LaunchCuda(p);
  REQUIRE(experts.Intact());
  REQUIRE(weights.Intact());
  return {experts.Download(), weights.Download()};
}

Gate GateOfReference(MoeGateParams p, const float* x, int32_t rows,
                     const std::vector<int32_t>& tokens) {
  Gate gate{std::vector<int32_t>(rows * p.experts_per_token, -7),
            std::vector<float>(rows * p.experts_per_token, NAN)};
  p.rows = rows;
  p.x = x;
  if (p.tid2eid != nullptr) p.tokens = tokens.data();
  p.experts = gate.experts.data();
  p.weights = gate.weights.data();
  LaunchKernel(ReferenceManifest(), p, kPublished);
  return gate;
}

void RequireSameGate(const Gate& got, const Gate& expected) {
  REQUIRE(got.experts == expected.experts);
  REQUIRE(FarElements(got.weights, expected.weights, {.relative = 3e-6, .absolute = 1e-9}) == "");
}

TEST_CASE("sm12x moe_gate chooses and weighs as the reference, whatever the rows") {
  constexpr int32_t kRows = 257;
  struct Case {
    int64_t experts, hidden;
    int32_t k;
  };
  for (const Case& c : {Case{5, 128, 5}, Case{37, 256, 4}, Case{40, 768, 4}, Case{256, 4096, 6},
                        Case{384, 512, 8}}) {
    INFO(c.experts << " experts");
    // No row's best experts are closer than 7e-6 of their scores, so that no noise changes places.
    const Bf16Rows x(47, kRows, c.hidden);
    Bf16Storage stored(42, c.experts, c.hidden);
    // Logits near 1: the scores of very negative ones have the relative error of the logits' noise.
    for (uint16_t& w : stored.data) w = FloatToBf16(Bf16ToFloat(w) / 64);
    const CudaBf16 weight(stored);
    const std::vector<float> bias = RandomFloats(43, c.experts, 0.5f);
    const DeviceCopy<float> cuda_bias(bias);
    std::vector<int32_t> table, tokens;
    for (int64_t i = 0; i < 11 * c.k; ++i) {
      table.push_back(static_cast<int32_t>((i * 7 + i / c.k) % c.experts));
    }
    for (int32_t t = 0; t < kRows; ++t) tokens.push_back(t * 5 % 11);
    const DeviceCopy<int32_t> cuda_table(table);
    for (const bool hashed : {false, true}) {
      INFO((hashed ? "hashed" : "scored"));
      MoeGateParams truth;
      truth.experts_per_token = c.k;
      truth.gate = stored.view();
      truth.routed_scale = 1.5f;
      MoeGateParams p = truth;
      p.gate = weight.view();
      if (hashed) {
        truth.tid2eid = table.data();
        p.tid2eid = cuda_table.data();
      } else {
        truth.bias = bias.data();
        p.bias = cuda_bias.data();
      }
      const Gate all = GateOnCuda(p, x.bits, kRows, tokens);
      RequireSameGate(all, GateOfReference(truth, x.values.data(), kRows, tokens));
      for (const int32_t rows : {1, 2, 3, 6, 8, 16, 17, 33, 48, 64, 65, 256}) {
        INFO(rows << " rows");
        const int64_t first = kRows - rows;
        const Gate part =
            GateOnCuda(p, x.Bits(first, rows), rows, {tokens.begin() + first, tokens.end()});
        RequireSameBits(part.experts, all.experts, first * c.k);
        RequireSameBits(part.weights, all.weights, first * c.k);
      }
      Gate padded = all;
      std::vector<int32_t> sequence_of;
      for (int32_t row = 0; row < kRows; ++row) {
        sequence_of.push_back(row % 7 == 3 ? -1 : row / 50);
        if (row % 7 != 3) continue;
        std::fill_n(padded.experts.begin() + int64_t{row} * c.k, c.k, -1);
        std::fill_n(padded.weights.begin() + int64_t{row} * c.k, c.k, 0.0f);
      }
      const Gate got = GateOnCuda(p, x.bits, kRows, tokens, sequence_of);
      RequireSameBits(got.experts, padded.experts, 0);
      RequireSameBits(got.weights, padded.weights, 0);
    }
  }
}

TEST_CASE("sm12x moe_gate breaks ties to the lowest expert and takes logits of any size") {
  Bf16Storage stored(44, 64, 128);
  for (size_t i = 0; i < stored.data.size(); ++i) {
    stored.data[i] = FloatToBf16(i / 128 % 2 == 0 ? 1.0f : -1.0f);
  }
  const CudaBf16 weight(stored);
  std::vector<float> bias(64, 0.25f);
  bias[40] = bias[3] = bias[63] = 1;
  const DeviceCopy<float> cuda_bias(bias);
  MoeGateParams p;
  p.experts_per_token = 6;
  p.gate = weight.view();
  p.bias = cuda_bias.data();
  p.routed_scale = 2.5f;
  const Gate ties = GateOnCuda(p, std::vector<uint16_t>(128), 1, {0});
  REQUIRE(ties.experts == std::vector<int32_t>{3, 40, 63, 0, 1, 2});
  const std::vector<double> equal(6, 2.5 / 6);
  REQUIRE(FarElements(ties.weights, equal, {.relative = 1e-5}) == "");
  const Gate large = GateOnCuda(p, std::vector<uint16_t>(128, FloatToBf16(100)), 1, {0});
  REQUIRE(large.experts == std::vector<int32_t>{40, 0, 2, 4, 6, 8});
  REQUIRE(FarElements(large.weights, equal, {.relative = 1e-5}) == "");
  // A row that is padding may hold anything; what it chooses must be experts.
  const Gate nothing = GateOnCuda(p, std::vector<uint16_t>(128, 0x7fc0), 1, {0});
  const auto [least, most] = std::minmax_element(nothing.experts.begin(), nothing.experts.end());
  REQUIRE(*least >= 0);
  REQUIRE(*most < 64);
}

TEST_CASE("sm12x moe_gate counts the calls that choose an expert, not the rows") {
  constexpr int64_t kExperts = 37, kHidden = 256;
  constexpr int32_t kRows = 260, kChosen = 4;
  const Bf16Rows x(48, kRows, kHidden);
  const CudaBf16 weight(Bf16Storage(45, kExperts, kHidden));
  const DeviceCopy<float> bias(RandomFloats(46, kExperts, 0.5f));
  DeviceCopy<ExpertCounts> counts(std::vector<ExpertCounts>(kExperts, ExpertCounts()));
  DeviceCopy<uint32_t> calls(std::vector<uint32_t>{0});
  MoeGateParams p;
  p.experts_per_token = kChosen;
  p.gate = weight.view();
  p.bias = bias.data();
  p.routed_scale = 1;
  const Gate without = GateOnCuda(p, x.bits, kRows, {});
  p.counts = counts.data();
  p.calls = calls.data();
  std::vector<uint32_t> expected(kExperts);
  for (const int32_t rows : {kRows, 1, 7, kRows}) {
    std::vector<int32_t> sequence_of(static_cast<size_t>(rows));
    sequence_of.back() = rows == 7 ? -1 : 0;  // padding, which chooses none
    const Gate gate = GateOnCuda(p, x.Bits(0, rows), rows, {}, sequence_of);
    if (rows == kRows) REQUIRE(gate.experts == without.experts);
    std::vector<bool> chosen(kExperts);
    for (const int32_t expert : gate.experts) {
      if (expert >= 0) chosen[static_cast<size_t>(expert)] = true;
    }
    for (size_t e = 0; e < chosen.size(); ++e) expected[e] += chosen[e];
  }
  std::vector<uint32_t> got;
  for (const ExpertCounts& expert : counts.Download()) got.push_back(expert.calls);
  REQUIRE(DifferentBits(got, expected) == "");
  REQUIRE(calls.Download() == std::vector<uint32_t>{4});
}

// Weights of one format as they are stored, and as kernels read them.
struct Mxfp4Format {
  using Storage = Fp4Storage;
  using Cuda = CudaFp4;
  static constexpr ExpertFormat kFormat = ExpertFormat::kMxfp4;
};
struct Nvfp4Format {
  using Storage = Nvfp4Storage;
  using Cuda = CudaNvfp4;
  static constexpr ExpertFormat kFormat = ExpertFormat::kNvfp4;
};
struct Fp8Format {
  using Storage = Fp8Storage;
  using Cuda = CudaFp8;
};
struct Fp8F32Format {
  using Storage = Fp8F32Storage;
  using Cuda = CudaFp8F32;
  static constexpr ExpertFormat kFormat = ExpertFormat::kFp8;
};

// A layer's experts in both forms.
template <class Routed = Mxfp4Format, class Shared = Fp8Format>
struct Layer {
  int64_t hidden, inter;
  std::vector<typename Routed::Storage> w1, w3, w2;
  typename Shared::Storage shared_w1, shared_w3, shared_w2;
  std::vector<ExpertWeights> experts;
  std::vector<const ExpertWeights*> table;
  std::vector<typename Routed::Cuda> cuda_routed;
  std::vector<typename Shared::Cuda> cuda_shared;
  std::vector<DeviceCopy<ExpertWeights>> cuda_experts;
  std::vector<DeviceCopy<const ExpertWeights*>> cuda_table;

  Layer(uint64_t seed, int64_t d, int64_t i, int32_t count)
      : hidden(d),
        inter(i),
        shared_w1(seed, i, d),
        shared_w3(seed + 1, i, d),
        shared_w2(seed + 2, d, i) {
    for (int32_t e = 0; e < count; ++e) {
      w1.emplace_back(seed + 10 + 3 * e, i, d);
      w3.emplace_back(seed + 11 + 3 * e, i, d);
      w2.emplace_back(seed + 12 + 3 * e, d, i);
    }
    std::vector<ExpertWeights> views;
    for (int32_t e = 0; e < count; ++e) {
      experts.push_back({w1[e].view(), w3[e].view(), w2[e].view()});
      for (const auto* w : {&w1[e], &w3[e], &w2[e]}) cuda_routed.emplace_back(*w);
      const auto* const of = &cuda_routed[cuda_routed.size() - 3];
      views.push_back({of[0].view(), of[1].view(), of[2].view()});
    }
    for (const ExpertWeights& e : experts) table.push_back(&e);
    for (const auto* w : {&shared_w1, &shared_w3, &shared_w2}) cuda_shared.emplace_back(*w);
    cuda_experts.emplace_back(views);
    std::vector<const ExpertWeights*> pointers;
    for (int32_t e = 0; e < count; ++e) pointers.push_back(cuda_experts[0].data() + e);
    cuda_table.emplace_back(pointers);
  }
  Layer(const Layer&) = delete;

  ExpertFfnParams Params(int32_t per_token, float limit) const {
    ExpertFfnParams p;
    p.hidden = hidden;
    p.inter = inter;
    p.expert_count = static_cast<int32_t>(experts.size());
    p.experts_per_token = per_token;
    p.format = Routed::kFormat;
    p.limit = limit;
    return p;
  }
};

template <class Routed, class Shared>
std::vector<uint16_t> FfnOnCuda(const Layer<Routed, Shared>& layer, ExpertFfnParams p,
                                const QuantizedRows& x, const Gate& gate, int64_t first,
                                int32_t rows) {
  const int64_t k = p.experts_per_token;
  const DeviceCopy<uint8_t> input(x.Bytes(first, rows));
  const DeviceCopy<int32_t> experts(std::vector<int32_t>(
      gate.experts.begin() + first * k, gate.experts.begin() + (first + rows) * k));
  const DeviceCopy<float> weights(std::vector<float>(gate.weights.begin() + first * k,
                                                     gate.weights.begin() + (first + rows) * k));
  DeviceCopy<uint16_t> y(rows * p.hidden);
  p.rows = rows;
  p.experts_table = layer.cuda_table[0].data();
  p.shared_w1 = layer.cuda_shared[0].view();
  p.shared_w3 = layer.cuda_shared[1].view();
  p.shared_w2 = layer.cuda_shared[2].view();
  p.experts = experts.data();
  p.weights = weights.data();
  p.x = input.data();
  p.y = y.data();
  LaunchCuda(p);
  REQUIRE(y.Intact());
  const std::vector<uint16_t> whole = y.Download();

  // The halves, as ranks call them, come to the same.
  DeviceCopy<uint16_t> products(rows * (k + 1) * p.inter), again(rows * p.hidden);
  p.part = ExpertPart::kProducts;
  p.products = products.data();
  LaunchCuda(p);
  p.part = ExpertPart::kOutputs;
  p.x = nullptr;
  p.y = again.data();
  LaunchCuda(p);
  REQUIRE(products.Intact());
  REQUIRE(again.Intact());
  RequireSameBits(again.Download(), whole, 0);

  // And turns, as weights come: those of odd numbers after the others.
  if (rows > 64) return whole;
  std::vector<int32_t> even = experts.Download(), odd = even;
  for (int32_t& expert : even) expert = expert % 2 == 0 ? expert : -1;
  for (int32_t& expert : odd) expert = expert % 2 == 1 ? expert : -1;
  const DeviceCopy<int32_t> first_turn(even), next_turn(odd);
  constexpr int32_t kSecondRange = 3;
  // Or by ranges of experts.
  for (const bool ranges : {false, true}) {
    for (const bool halves : {false, true}) {
      DeviceCopy<uint16_t> outputs(rows * (k + 1) * p.hidden), sum(rows * p.hidden);
      p.x = input.data();
      p.y = sum.data();
      p.outputs = outputs.data();
      for (const ExpertTurn turn : {ExpertTurn::kFirst, ExpertTurn::kNext, ExpertTurn::kSum}) {
        p.turn = turn;
        p.experts = ranges || turn == ExpertTurn::kSum ? experts.data()
                    : turn == ExpertTurn::kFirst       ? first_turn.data()
                                                       : next_turn.data();
        const bool all = !ranges || turn == ExpertTurn::kSum;
        p.first_expert = all || turn == ExpertTurn::kFirst ? 0 : kSecondRange;
        p.end_expert = all || turn == ExpertTurn::kNext ? p.expert_count : kSecondRange;
        p.part = halves ? ExpertPart::kProducts : ExpertPart::kWhole;
        if (turn != ExpertTurn::kSum || !halves) LaunchCuda(p);
        p.part = ExpertPart::kOutputs;
        if (halves) LaunchCuda(p);
      }
      REQUIRE(sum.Intact());
      RequireSameBits(sum.Download(), whole, 0);
    }
  }
  return whole;
}

// Most rows go to the last expert too where `crowded`.
Gate RandomGate(uint64_t seed, int32_t rows, int32_t count, int32_t k, bool crowded) {
  Gate gate;
  uint64_t index = 0;
  for (int32_t t = 0; t < rows; ++t) {
    std::vector<int32_t> deck(count);
    std::iota(deck.begin(), deck.end(), 0);
    for (int32_t i = 0; i < k; ++i) {
      const auto pick = static_cast<int32_t>((RandomValue(seed, index++) + 1) / 2 *
                                             static_cast<float>(count - i));
      std::swap(deck[i], deck[i + std::min(pick, count - i - 1)]);
    }
    if (crowded && t % 4 != 1) {
      std::iter_swap(deck.begin() + t % k, std::find(deck.begin(), deck.end(), count - 1));
    }
    for (int32_t i = 0; i < k; ++i) {
      gate.experts.push_back(deck[i]);
      gate.weights.push_back(0.6f + 0.5f * RandomValue(seed + 1, index++));
    }
  }
  return gate;
}

template <class Routed, class Shared>
void CheckFfn(const Layer<Routed, Shared>& layer, int32_t k, float limit, int32_t rows,
              bool crowded, std::initializer_list<int32_t> row_counts) {
  const auto count = static_cast<int32_t>(layer.experts.size());
  INFO("hidden " << layer.hidden << ", inter " << layer.inter << ", " << count << " experts, "
                 << rows << " rows" << (crowded ? ", crowded" : ""));
  const QuantizedRows x(51, rows, layer.hidden);
  const Gate gate = RandomGate(52, rows, count, k, crowded);
  const ExpertFfnParams p = layer.Params(k, limit);
  const std::vector<uint16_t> all = FfnOnCuda(layer, p, x, gate, 0, rows);

  std::vector<float> expected(rows * layer.hidden, NAN);
  ExpertFfnParams truth = p;
  truth.rows = rows;
  truth.experts_table = layer.table.data();
  truth.shared_w1 = layer.shared_w1.view();
  truth.shared_w3 = layer.shared_w3.view();
  truth.shared_w2 = layer.shared_w2.view();
  truth.experts = gate.experts.data();
  truth.weights = gate.weights.data();
  truth.x = x.values.data();
  truth.y = expected.data();
  LaunchKernel(ReferenceManifest(), truth, kPublished);
  // Hidden values that round the other way, seldom; a missing rounding point or quantiser moves a
  // row by 5e-3 or more.
  size_t apart = 0;
  for (int64_t t = 0; t < rows; ++t) {
    double distance = 0, norm = 0;
    for (int64_t d = 0; d < layer.hidden; ++d) {
      const auto i = static_cast<size_t>(t * layer.hidden + d);
      const double error = double{Bf16ToFloat(all[i])} - expected[i];
      apart += error != 0;
      distance += error * error;
      norm += double{expected[i]} * expected[i];
    }
    if (distance <= 1e-3 * 1e-3 * norm) continue;
    FAIL("row " << t << " is " << std::sqrt(distance / norm) << " away");
  }
  INFO(apart << " of " << all.size() << " elements are apart");
  REQUIRE(apart <= 2 + all.size() / 1000);
  for (const int32_t m : row_counts) {
    INFO("the last " << m << " rows");
    const int64_t first = rows - m;
    RequireSameBits(FfnOnCuda(layer, p, x, gate, first, m), all, first * layer.hidden);
  }
}

TEST_CASE("sm12x expert_ffn equals the reference and keeps the row rule") {
  {
    const Layer<> layer(61, 256, 128, 16);
    CheckFfn(layer, 4, 10.0f, 192, false, {1, 2, 3, 6, 8, 9, 16, 17, 48, 49, 64, 65, 191});
    CheckFfn(layer, 4, 10.0f, 192, true, {1, 2, 3, 6, 8, 9, 16, 17, 48, 49, 64, 65, 191});
  }
  CheckFfn(Layer<>(62, 384, 256, 5), 2, 0.0f, 70, true, {1, 2, 8, 9, 48, 64});
  CheckFfn(Layer<>(63, 1024, 640, 40), 6, 10.0f, 65, false, {1, 8, 16, 48, 64});
}

TEST_CASE("sm12x expert_ffn runs FP8 and NVFP4 experts by the same rules") {
  const std::initializer_list<int32_t> rows = {1, 2, 8, 16, 17, 65};
  {
    INFO("FP8 under F32 scales");
    CheckFfn(Layer<Fp8F32Format, Fp8F32Format>(74, 256, 128, 6), 3, 10.0f, 70, true, rows);
  }
  {
    INFO("NVFP4, with a shared expert under E8M0 scales");
    CheckFfn(Layer<Nvfp4Format>(75, 256, 384, 6), 3, 10.0f, 70, true, rows);
  }
  // More than the kernels for few rows hold.
  CheckFfn(Layer<Nvfp4Format, Fp8F32Format>(76, 7168, 128, 2), 2, 10.0f, 3, false, {1});
}

TEST_CASE("sm12x expert_ffn holds at the model's widths") {
  const Layer<> layer(64, 4096, 2048, 3);
  CheckFfn(layer, 2, 10.0f, 12, true, {1, 2, 8});
  const Layer<> wide(65, 7168, 256, 2);  // more than the kernels for few rows hold
  CheckFfn(wide, 2, 10.0f, 9, false, {1, 8});
}

TEST_CASE("sm12x expert_ffn keeps the row rule with more rows than a grid is high") {
  constexpr int32_t kRows = 65537;
  const Layer<> layer(70, 256, 128, 4);
  const QuantizedRows x(71, kRows, layer.hidden);
  const Gate gate = RandomGate(72, kRows, 4, 2, false);
  const ExpertFfnParams p = layer.Params(2, 10.0f);
  const std::vector<uint16_t> all = FfnOnCuda(layer, p, x, gate, 0, kRows);
  for (const int64_t first : {0, kRows / 2, kRows - 9}) {
    RequireSameBits(FfnOnCuda(layer, p, x, gate, first, 9), all, first * layer.hidden);
  }
}

TEST_CASE("sm12x expert_ffn clamps, and takes an expert twice or none") {
  const Layer<> layer(66, 256, 128, 4);
  CheckFfn(layer, 2, 0.25f, 9, false, {1, 8});
  const QuantizedRows x(67, 64, 256);
  const ExpertFfnParams p = layer.Params(2, 10.0f);
  for (const int32_t rows : {1, 8, 12, 64}) {
    INFO(rows << " rows");
    const Gate twice{std::vector<int32_t>(128, 3), std::vector<float>(128, 0.5f)};
    Gate once{std::vector<int32_t>(128, 3), std::vector<float>(128, 0.5f)};
    Gate none{std::vector<int32_t>(128, -1), std::vector<float>(128, 0.5f)};
    for (size_t i = 0; i < 128; i += 2) once.experts[i] = -1;
    const auto y2 = FfnOnCuda(layer, p, x, twice, 0, rows);
    const auto y1 = FfnOnCuda(layer, p, x, once, 0, rows);
    const auto y0 = FfnOnCuda(layer, p, x, none, 0, rows);
    double distance = 0, norm = 0;
    for (size_t i = 0; i < y0.size(); ++i) {
      const double a = Bf16ToFloat(y2[i]), b = Bf16ToFloat(y1[i]), c = Bf16ToFloat(y0[i]);
      distance += (a - 2 * b + c) * (a - 2 * b + c);
      norm += (a - c) * (a - c);
    }
    REQUIRE(norm > 0);
    REQUIRE(distance <= 1e-4 * norm);
  }
}

TEST_CASE("sm12x expert_ffn holds where scales are far apart") {
  Layer<> layer(68, 256, 128, 3);
  const QuantizedRows x(69, 9, 256);
  // The large scale meets zero weights: only the others count.
  Fp4Storage w1 = layer.w1[1], w2 = layer.w2[2];
  for (int64_t o = 0; o < 128; o += 2) {
    w1.scale[static_cast<size_t>(o * 8 + 3)] = 230;
    std::fill_n(&w1.data[static_cast<size_t>(o * 128 + 48)], 16, uint8_t{0x80});
  }
  w2.scale[5] = 0;
  w2.scale[77 * 4] = 1;
  layer.w1[1] = w1;
  layer.w2[2] = w2;
  layer.experts[1].w1 = layer.w1[1].view();
  layer.experts[2].w2 = layer.w2[2].view();
  const CudaFp4 cuda_w1(w1), cuda_w2(w2);
  std::vector<ExpertWeights> views = layer.cuda_experts[0].Download();
  views[1].w1 = cuda_w1.view();
  views[2].w2 = cuda_w2.view();
  layer.cuda_experts[0].Upload(views);
  CheckFfn(layer, 2, 10.0f, 9, true, {1, 8});
}

}  // namespace
}  // namespace dsv4::test
