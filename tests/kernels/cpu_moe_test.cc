// SPDX-License-Identifier: Apache-2.0
// The SIMD backend's gate and experts against plain scalar arithmetic, for every variant, and the
// row rule bit for bit.
#include <numeric>

#include "kernels/cpu/entries.h"
#include "kernels/op/moe.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/matrix_truth.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {
namespace {

double SqrtSoftplus(double x) { return std::sqrt(x > 20 ? x : std::log1p(std::exp(x))); }

struct Gate {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Gate RunGate(MoeGateParams p, const std::vector<uint16_t>& x, int64_t first, int32_t rows,
             int threads) {
  Gate gate{std::vector<int32_t>(rows * p.experts_per_token, -7),
            std::vector<float>(rows * p.experts_per_token, NAN)};
  p.rows = rows;
  p.x = x.data() + first * p.gate.k;
  if (p.tokens != nullptr) p.tokens += first;
  p.experts = gate.experts.data();
  p.weights = gate.weights.data();
  LaunchKernel({&kCpuMoeGate, 1}, p, {.numerics = Numerics::kPublished, .threads = threads});
  return gate;
}

TEST_CASE("moe_gate takes the best scores with bias, and weighs them without") {
  Rng rng(1);
  constexpr int32_t kRows = 70;
  for (const int64_t experts : {16, 37, 256}) {
    const int32_t k = experts == 256 ? 6 : 4;
    const Bf16Matrix w(experts, 256, rng);
    const std::vector<uint16_t> x = RandomRows(kRows, 256, rng);
    std::vector<float> bias(experts);
    std::normal_distribution<float> normal(0, 0.3f);
    for (float& b : bias) b = normal(rng);
    MoeGateParams p;
    p.experts_per_token = k;
    p.gate = w.View();
    p.bias = bias.data();
    p.routed_scale = 1.5f;
    ForEachVariant([&](const std::string& name) {
      const Gate gate = RunGate(p, x, 0, kRows, 2);
      for (int64_t t = 0; t < kRows; ++t) {
        INFO(name << ", " << experts << " experts, row " << t);
        std::vector<double> score(experts);
        std::vector<int32_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        for (int64_t e = 0; e < experts; ++e) score[e] = SqrtSoftplus(Dot(&x[t * 256], w, e).value);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return score[a] + bias[a] > score[b] + bias[b];
        });
        double sum = 0;
        for (int32_t i = 0; i < k; ++i) sum += score[order[i]];
        order.resize(static_cast<size_t>(k));
        std::vector<double> weights;
        for (const int32_t e : order) weights.push_back(score[e] / sum * 1.5);
        const auto first = static_cast<size_t>(t * k);
        REQUIRE(absl::MakeConstSpan(gate.experts).subspan(first, order.size()) ==
                absl::MakeConstSpan(order));
        REQUIRE(FarElements(absl::MakeConstSpan(gate.weights).subspan(first, order.size()), weights,
                            {.relative = 3e-6, .absolute = 1e-9}) == "");
      }
      for (const int32_t m : {1, 3, 33}) {
        const Gate part = RunGate(p, x, 5, m, 1 + m % 3);
        REQUIRE(std::equal(part.experts.begin(), part.experts.end(), &gate.experts[5 * k]));
        REQUIRE(std::equal(part.weights.begin(), part.weights.end(), &gate.weights[5 * k]));
      }
    });
  }
}

TEST_CASE("moe_gate breaks ties to the lowest expert, also over several vectors") {
  Rng rng(2);
  const Bf16Matrix w(64, 128, rng);
  const std::vector<uint16_t> zero(128);  // every score is sqrt(log 2)
  std::vector<float> bias(64, 0.25f);
  bias[40] = bias[3] = bias[63] = 1;
  MoeGateParams p;
  p.experts_per_token = 6;
  p.gate = w.View();
  p.bias = bias.data();
  p.routed_scale = 2.5f;
  const Gate gate = RunGate(p, zero, 0, 1, 1);
  REQUIRE(gate.experts == std::vector<int32_t>{3, 40, 63, 0, 1, 2});
  REQUIRE(FarElements(gate.weights, std::vector<double>(6, 2.5 / 6), {.relative = 1e-5}) == "");
}

TEST_CASE("moe_gate of a hash-routed layer takes the token's experts and the gate's weights") {
  Rng rng(3);
  const Bf16Matrix w(16, 256, rng);
  const std::vector<uint16_t> x = RandomRows(3, 256, rng);
  const std::vector<int32_t> table = {1, 2, 3, 4, 15, 0, 7, 9, 5, 11, 3, 2}, tokens = {2, 0, 1};
  MoeGateParams p;
  p.experts_per_token = 4;
  p.gate = w.View();
  p.tokens = tokens.data();
  p.tid2eid = table.data();
  p.routed_scale = 1.5f;
  const Gate gate = RunGate(p, x, 0, 3, 1);
  std::vector<int32_t> experts;
  std::vector<double> weights;
  for (int64_t t = 0; t < 3; ++t) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      sum += SqrtSoftplus(Dot(&x[t * 256], w, table[tokens[t] * 4 + i]).value);
    }
    for (int i = 0; i < 4; ++i) {
      const int32_t e = table[tokens[t] * 4 + i];
      experts.push_back(e);
      weights.push_back(SqrtSoftplus(Dot(&x[t * 256], w, e).value) / sum * 1.5);
    }
  }
  REQUIRE(DifferentBits(gate.experts, experts) == "");
  REQUIRE(FarElements(gate.weights, weights, {.relative = 3e-6}) == "");
}

TEST_CASE("moe_gate survives logits of any size") {
  Rng rng(4);
  Bf16Matrix w(16, 128, rng);
  for (int64_t e = 0; e < 16; ++e) {
    for (int64_t i = 0; i < 128; ++i) w.data[e * 128 + i] = ToBf16(e % 2 == 0 ? 1.0 : -1.0);
  }
  std::vector<uint16_t> x(128, ToBf16(100.0));
  const std::vector<float> bias(16, 0.0f);
  MoeGateParams p;
  p.experts_per_token = 2;
  p.gate = w.View();
  p.bias = bias.data();
  p.routed_scale = 1;
  ForEachVariant([&](const std::string& name) {
    INFO(name);
    const Gate gate = RunGate(p, x, 0, 1, 1);
    REQUIRE(gate.experts == std::vector<int32_t>{0, 2});
    REQUIRE(gate.weights[0] == Approx(0.5));
  });
}

template <class W1, class W3, class W2>
std::vector<double> ExpertTruth(const W1& w1, const W3& w3, const W2& w2, const uint16_t* x,
                                double weight, double limit) {
  std::vector<double> hidden(w1.n), out(w2.n);
  std::vector<uint16_t> quantised(w1.n);
  for (int64_t i = 0; i < w1.n; ++i) {
    double g = RoundBf16(Dot(x, w1, i).value), u = RoundBf16(Dot(x, w3, i).value);
    if (limit > 0) {
      g = std::min(g, limit);
      u = std::clamp(u, -limit, limit);
    }
    hidden[i] = RoundBf16(g / (1 + std::exp(-g)) * u * weight);
  }
  ActQuant(hidden.data(), w1.n);
  for (int64_t i = 0; i < w1.n; ++i) quantised[i] = ToBf16(hidden[i]);
  for (int64_t d = 0; d < w2.n; ++d) out[d] = RoundBf16(Dot(quantised.data(), w2, d).value);
  return out;
}

// A layer's experts, with scales that keep the hidden values near 1.
struct Layer {
  int64_t hidden, inter;
  std::vector<Fp4Matrix> w1, w3, w2;
  Fp8Matrix shared_w1, shared_w3, shared_w2;
  std::vector<ExpertWeights> experts;
  std::vector<const ExpertWeights*> table;
  // Of an expert: its output for a row, by the routing weight and the clamp.
  std::vector<std::function<std::vector<double>(const uint16_t*, double, double)>> truth;

  Layer(int64_t d, int64_t i, int32_t count, Rng& rng)
      : hidden(d), inter(i), shared_w1(i, d, rng), shared_w3(i, d, rng), shared_w2(d, i, rng) {
    const auto tame = [](auto& matrix, int base) {
      for (uint8_t& byte : matrix.scale) byte = static_cast<uint8_t>(base + byte % 2);
    };
    for (Fp8Matrix* w : {&shared_w1, &shared_w3, &shared_w2}) tame(*w, 114);
    for (int32_t e = 0; e < count; ++e) {
      w1.emplace_back(i, d, rng);
      w3.emplace_back(i, d, rng);
      w2.emplace_back(d, i, rng);
      for (Fp4Matrix* w : {&w1.back(), &w3.back(), &w2.back()}) tame(*w, 121);
    }
    for (int32_t e = 0; e < count; ++e) {
      experts.push_back({w1[e].View(), w3[e].View(), w2[e].View()});
      truth.push_back([this, e](const uint16_t* x, double weight, double limit) {
        return ExpertTruth(w1[e], w3[e], w2[e], x, weight, limit);
      });
    }
    for (const ExpertWeights& e : experts) table.push_back(&e);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Expert `e` in other formats; the matrices outlive the layer.
  template <class W1, class W3, class W2>
  void Replace(size_t e, const W1& own_w1, const W3& own_w3, const W2& own_w2) {
    experts[e] = {own_w1.View(), own_w3.View(), own_w2.View()};
    truth[e] = [&](const uint16_t* x, double weight, double limit) {
      return ExpertTruth(own_w1, own_w3, own_w2, x, weight, limit);
    };
  }

  ExpertFfnParams Params(float limit, int32_t per_token) const {
    ExpertFfnParams p;
    p.hidden = hidden;
    p.inter = inter;
    p.expert_count = static_cast<int32_t>(table.size());
    p.experts_per_token = per_token;
    p.experts_table = table.data();
    p.shared_w1 = shared_w1.View();
    p.shared_w3 = shared_w3.View();
    p.shared_w2 = shared_w2.View();
    p.limit = limit;
    return p;
  }
};

std::vector<uint16_t> RunFfn(ExpertFfnParams p, const std::vector<uint16_t>& x, const Gate& gate,
                             int64_t first, int32_t rows, int threads) {
  std::vector<uint16_t> y(rows * p.hidden, 0x7fc0);
  p.rows = rows;
  p.x = x.data() + first * p.hidden;
  p.experts = gate.experts.data() + first * p.experts_per_token;
  p.weights = gate.weights.data() + first * p.experts_per_token;
  p.y = y.data();
  LaunchKernel({&kCpuExpertFfn, 1}, p, {.numerics = Numerics::kPublished, .threads = threads});
  return y;
}

// y from what a wave leaves of the routed experts, and the shared expert's outputs: a row's terms
// in their order, in f32. A wave leaves nothing of pairs without an expert.
std::vector<uint16_t> SumOfTurn(ExpertFfnParams p, const std::vector<uint16_t>& x, const Gate& gate,
                                int32_t rows) {
  constexpr uint16_t kPoison = 0x7fc0;
  const int64_t d = p.hidden, k = p.experts_per_token;
  std::vector<uint16_t> outputs(rows * (k + 1) * d, kPoison);
  ExpertFfnParams wave = p;
  wave.rows = rows;
  wave.x = x.data();
  wave.experts = gate.experts.data();
  wave.weights = gate.weights.data();
  wave.wave = ExpertWave::kNext;
  wave.outputs = outputs.data();
  wave.shared_w1 = wave.shared_w3 = wave.shared_w2 = {};
  LaunchKernel({&kCpuExpertFfn, 1}, wave, {.numerics = Numerics::kPublished, .threads = 3});
  Gate none = gate;
  std::fill(none.experts.begin(), none.experts.end(), -1);
  const std::vector<uint16_t> shared = RunFfn(p, x, none, 0, rows, 1);
  std::vector<uint16_t> y(rows * d);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t j = 0; j < d; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        const uint16_t term = outputs[(t * k + i) * d + j];
        if (gate.experts[t * k + i] < 0) {
          if (term != kPoison) FAIL();
        } else {
          sum += Bf16ToFloat(term);
        }
      }
      y[t * d + j] = ToBf16(sum + Bf16ToFloat(shared[t * d + j]));
    }
  }
  return y;
}

void CheckFfn(const Layer& layer, float limit, int32_t per_token, int32_t rows, Rng& rng) {
  const int64_t d = layer.hidden;
  const auto count = static_cast<int32_t>(layer.table.size());
  const std::vector<uint16_t> x = RandomQuantisedRows(rows, d, rng);
  Gate gate;
  std::vector<int32_t> deck(count);
  std::iota(deck.begin(), deck.end(), 0);
  for (int32_t t = 0; t < rows; ++t) {
    std::shuffle(deck.begin(), deck.end(), rng);
    // The last expert serves most rows, so that jobs are cut.
    if (t % 4 != 0) std::iter_swap(deck.begin(), std::find(deck.begin(), deck.end(), count - 1));
    for (int32_t i = 0; i < per_token; ++i) {
      gate.experts.push_back((t + i) % 13 == 5 ? -1 : deck[i]);  // -1: none
      gate.weights.push_back(static_cast<float>(0.1 + 0.01 * static_cast<double>(rng() % 100)));
    }
  }
  std::vector<double> truth(rows * d);
  for (int64_t t = 0; t < rows; ++t) {
    std::vector<float> sum(d);
    for (int32_t i = 0; i <= per_token; ++i) {
      const int32_t e = i < per_token ? gate.experts[t * per_token + i] : count;
      if (e < 0) continue;
      const std::vector<double> out =
          e < count
              ? layer.truth[e](&x[t * d], gate.weights[t * per_token + i], limit)
              : ExpertTruth(layer.shared_w1, layer.shared_w3, layer.shared_w2, &x[t * d], 1, limit);
      for (int64_t j = 0; j < d; ++j) sum[j] += static_cast<float>(out[j]);
    }
    for (int64_t j = 0; j < d; ++j) truth[t * d + j] = RoundBf16(sum[j]);
  }
  const ExpertFfnParams p = layer.Params(limit, per_token);
  ForEachVariant([&](const std::string& name) {
    const std::vector<uint16_t> y = RunFfn(p, x, gate, 0, rows, 2);
    // Sums that round the other way, seldom; a missing rounding or quantiser moves a row by 5e-3
    // or more.
    for (int64_t t = 0; t < rows; ++t) {
      double distance = 0, norm = 0;
      for (int64_t j = 0; j < d; ++j) {
        const double error = Bf16ToFloat(y[t * d + j]) - truth[t * d + j];
        distance += error * error;
        norm += truth[t * d + j] * truth[t * d + j];
      }
      INFO(name << " row " << t << " of " << rows << ": " << std::sqrt(distance / norm));
      if (!(distance <= 2e-3 * 2e-3 * norm)) FAIL();
    }
    REQUIRE(SumOfTurn(p, x, gate, rows) == y);
    for (const int32_t m : {1, 2, 7, 13, 70}) {
      if (m > rows) continue;
      INFO(name << ": the last " << m << " of " << rows << " rows");
      const std::vector<uint16_t> part = RunFfn(p, x, gate, rows - m, m, 1 + m % 3);
      REQUIRE(std::equal(part.begin(), part.end(), y.end() - m * d));
    }
  });
}

TEST_CASE("expert_ffn is the published sum of experts, whatever the rows and threads") {
  Rng rng(5);
  CheckFfn(Layer(256, 128, 16, rng), 10.0f, 4, 200, rng);
  CheckFfn(Layer(384, 256, 5, rng), 0.0f, 2, 14, rng);
}

TEST_CASE("expert_ffn clamps routed and shared experts") {
  Rng rng(6);
  CheckFfn(Layer(256, 128, 4, rng), 0.25f, 2, 9, rng);
}

TEST_CASE("expert_ffn holds where scales do not fold into the weights") {
  Rng rng(7);
  Layer layer(256, 128, 3, rng);
  // Far-apart scales whose large side meets zero weights: only the small side counts.
  for (int64_t o = 0; o < 128; o += 2) {
    layer.w1[1].scale[o * 8 + 3] = 230;
    std::fill_n(&layer.w1[1].data[o * 128 + 48], 16, uint8_t{0x80});
  }
  layer.w2[2].scale[5] = 0;
  layer.w2[2].scale[77 * 4] = 1;
  CheckFfn(layer, 10.0f, 2, 9, rng);
}

TEST_CASE("expert_ffn takes every matrix in its own format") {
  Rng rng(8);
  Layer layer(256, 128, 4, rng);
  const Nvfp4Matrix nvfp4_w1(128, 256, rng), nvfp4_w3(128, 256, rng), nvfp4_w2(256, 128, rng);
  Fp8Matrix fp8_w3(128, 256, rng);
  for (uint8_t& byte : fp8_w3.scale) byte = 114;
  Fp8F32Matrix f32_w1(128, 256, rng), f32_w2(256, 128, rng);
  for (Fp8F32Matrix* w : {&f32_w1, &f32_w2}) {
    for (float& scale : w->f32_scale) scale = std::ldexp(1.37f, -13);
  }
  layer.Replace(0, nvfp4_w1, nvfp4_w3, nvfp4_w2);
  layer.Replace(1, f32_w1, fp8_w3, layer.w2[1]);
  layer.Replace(2, layer.w1[2], nvfp4_w3, f32_w2);
  CheckFfn(layer, 10.0f, 2, 150, rng);
  CheckFfn(layer, 0.0f, 3, 3, rng);
}

}  // namespace
}  // namespace dsv4::test
