// SPDX-License-Identifier: Apache-2.0
// The reference's hyper-connection, output-group and expert operators against the formulas of their
// contracts, written out in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using test::Fp4Storage;
using test::Fp8Storage;
using test::LaunchKernel;
using test::RandomFloats;
using test::RandomNorm;
using test::RelativeDistance;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

double Element(const Fp8Weight& w, int64_t o, int64_t i) {
  const uint8_t scale = w.scale[o / 128 * ((w.k + 127) / 128) + i / 128];
  return double{E4M3ToFloat(w.data[o * w.k + i])} * std::exp2(scale - 127);
}

double Element(const Fp4Weight& w, int64_t o, int64_t i) {
  const uint8_t byte = w.data[o * (w.k / 2) + i / 2];
  const uint8_t scale = w.scale[o * (w.k / 32) + i / 32];
  return double{E2M1ToFloat(i % 2 == 0 ? byte & 15 : byte >> 4)} * std::exp2(scale - 127);
}

template <class Weight, class T>
Doubles Product(const Weight& w, const T* x) {
  Doubles y(static_cast<size_t>(w.n));
  for (int64_t o = 0; o < w.n; ++o) {
    for (int64_t i = 0; i < w.k; ++i) y[static_cast<size_t>(o)] += Element(w, o, i) * x[i];
  }
  return y;
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

template <class Weight>
Doubles Expert(const Weight& w1, const Weight& w3, const Weight& w2, const float* x, double weight,
               double limit) {
  const Doubles gate = Product(w1, x), up = Product(w3, x);
  Doubles hidden;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = limit > 0 ? std::min(gate[i], limit) : gate[i];
    const double u = limit > 0 ? std::clamp(up[i], -limit, limit) : up[i];
    hidden.push_back(g * Logistic(g) * u * weight);
  }
  return Product(w2, hidden.data());
}

TEST_CASE("expert_ffn adds the weighted clamped experts and the shared one") {
  const float limit = GENERATE(0.0f, 0.7f);
  const int64_t hidden = 256, inter = 128, rows = 37, k = 3, count = 5;
  std::vector<Fp4Storage> storage;
  std::vector<ExpertWeights> experts;
  for (uint64_t i = 0; i < 5; ++i) {
    storage.emplace_back(100 + i, inter, hidden);
    storage.emplace_back(110 + i, inter, hidden);
    storage.emplace_back(120 + i, hidden, inter);
  }
  for (size_t e = 0; e < 5; ++e) {
    experts.push_back(
        {storage[3 * e].view(), storage[3 * e + 1].view(), storage[3 * e + 2].view()});
  }
  std::vector<const ExpertWeights*> table;
  for (const ExpertWeights& expert : experts) table.push_back(&expert);
  const Fp8Storage w1(130, inter, hidden), w3(131, inter, hidden), w2(132, hidden, inter);
  const Floats x = RandomFloats(133, rows * hidden), weights = RandomFloats(134, rows * k);
  std::vector<int32_t> routes;
  // Expert 4 is never chosen and must not be touched.
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < k; ++i) routes.push_back(static_cast<int32_t>((t * t + i) % 4));
    if (t % 7 == 2) routes.back() = -1;  // none
  }
  table[4] = nullptr;
  Floats y(x.size());
  ExpertFfnParams params;
  params.rows = rows;
  params.hidden = hidden;
  params.inter = inter;
  params.expert_count = count;
  params.experts_per_token = k;
  params.experts_table = table.data();
  params.shared_w1 = w1.view();
  params.shared_w3 = w3.view();
  params.shared_w2 = w2.view();
  params.experts = routes.data();
  params.weights = weights.data();
  params.limit = limit;
  params.x = x.data();
  params.y = y.data();
  LaunchKernel(ReferenceManifest(), params, {.threads = 2});
  Doubles expected;
  for (int64_t t = 0; t < rows; ++t) {
    const float* row = &x[static_cast<size_t>(t * hidden)];
    Doubles sum = Expert(w1.view(), w3.view(), w2.view(), row, 1, double{limit});
    for (int64_t i = 0; i < k; ++i) {
      const auto pair = static_cast<size_t>(t * k + i);
      if (routes[pair] < 0) continue;
      const ExpertWeights& expert = experts[static_cast<size_t>(routes[pair])];
      const Doubles one = Expert(expert.w1.mxfp4(), expert.w3.mxfp4(), expert.w2.mxfp4(), row,
                                 double{weights[pair]}, double{limit});
      for (size_t d = 0; d < sum.size(); ++d) sum[d] += one[d];
    }
    expected.insert(expected.end(), sum.begin(), sum.end());
  }
  CHECK(RelativeDistance(y, expected) < 5e-7);
}

TEST_CASE("output_groups multiplies each group's heads by its own rows") {
  const int64_t rows = 5, groups = 3, rank = 128, width = 512;
  const Fp8Storage wo_a(140, groups * rank, width);
  const Floats o = RandomFloats(141, rows * groups * width);
  Floats y(static_cast<size_t>(rows * groups * rank));
  OutputGroupsParams params;
  params.rows = rows;
  params.groups = groups;
  params.rank = rank;
  params.group_width = width;
  params.wo_a = wo_a.view();
  params.o = o.data();
  params.y = y.data();
  LaunchKernel(ReferenceManifest(), params, {.threads = 2});
  Doubles expected;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t n = 0; n < groups * rank; ++n) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        const int64_t column = (t * groups + n / rank) * width + i;
        sum += Element(wo_a.view(), n, i) * o[static_cast<size_t>(column)];
      }
      expected.push_back(sum);
    }
  }
  CHECK(RelativeDistance(y, expected) < 3e-7);
}

TEST_CASE("rms_norm writes the outputs it is asked for") {
  const Floats x = RandomFloats(142, 3 * 256, 5);
  const std::vector<uint16_t> weight = RandomNorm(143, 256);
  Doubles expected;
  for (size_t t = 0; t < 3; ++t) {
    double sum = 0;
    for (size_t i = 0; i < 256; ++i) sum += double{x[t * 256 + i]} * x[t * 256 + i];
    for (size_t i = 0; i < 256; ++i) {
      expected.push_back(x[t * 256 + i] / std::sqrt(sum / 256 + 1e-6) *
                         double{Bf16ToFloat(weight[i])});
    }
  }
  Floats normed(x.size()), quantized(x.size()), alone(x.size());
  RmsNormParams params;
  params.rows = 3;
  params.dim = 256;
  params.x = x.data();
  params.weight = weight.data();
  params.eps = 1e-6f;
  params.normed = normed.data();
  params.quantized = quantized.data();
  LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kFp32});
  CHECK(RelativeDistance(normed, expected) < 2e-7);
  CHECK(RelativeDistance(quantized, expected) > 1e-3);  // three mantissa bits are left
  CHECK(RelativeDistance(quantized, expected) < 4e-2);
  params.normed = nullptr;
  params.quantized = alone.data();
  LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kFp32});
  CHECK(alone == quantized);
  params.normed = alone.data();
  params.quantized = nullptr;
  LaunchKernel(ReferenceManifest(), params, {.numerics = Numerics::kFp32});
  CHECK(alone == normed);
}

// m of model.md 4.1: (fn . X) * rsqrt(mean(X^2) + eps).
Doubles Mixes(const float* streams, int64_t hidden, const Floats& fn) {
  double square = 0;
  for (int64_t i = 0; i < 4 * hidden; ++i) square += double{streams[i]} * streams[i];
  Doubles m;
  for (size_t row = 0; row < fn.size() / static_cast<size_t>(4 * hidden); ++row) {
    double sum = 0;
    for (int64_t i = 0; i < 4 * hidden; ++i) {
      sum +=
          double{fn[row * static_cast<size_t>(4 * hidden) + static_cast<size_t>(i)]} * streams[i];
    }
    m.push_back(sum / std::sqrt(square / static_cast<double>(4 * hidden) + 1e-6));
  }
  return m;
}

// RMSNorm(sum_h pre[h] X[h]).
Doubles MixedAndNormed(const float* streams, int64_t hidden, const Doubles& pre,
                       const std::vector<uint16_t>& norm) {
  Doubles x(static_cast<size_t>(hidden));
  double square = 0;
  for (size_t d = 0; d < x.size(); ++d) {
    for (size_t h = 0; h < 4; ++h) x[d] += pre[h] * streams[h * x.size() + d];
    square += x[d] * x[d];
  }
  for (size_t d = 0; d < x.size(); ++d) {
    x[d] *= double{Bf16ToFloat(norm[d])} / std::sqrt(square / static_cast<double>(hidden) + 1e-6);
  }
  return x;
}

TEST_CASE("hc_pre and hc_head mix the streams by their weights") {
  const int64_t rows = 18, hidden = 128;
  const Floats streams = RandomFloats(150, rows * 4 * hidden),
               fn = RandomFloats(151, 24 * 4 * hidden, 0.1f);
  const Floats base = RandomFloats(152, 24);
  const float scale[3] = {0.7f, 1.1f, 0.9f};
  const std::vector<uint16_t> norm = RandomNorm(153, hidden);
  Floats normed(static_cast<size_t>(rows * hidden)), quantized(normed), post(18 * 4), comb(18 * 16);
  HcPreParams pre_params;
  pre_params.rows = rows;
  pre_params.hidden = hidden;
  pre_params.streams = streams.data();
  pre_params.fn = fn.data();
  pre_params.base = base.data();
  pre_params.scale = scale;
  pre_params.hc_eps = pre_params.norm_eps = 1e-6f;
  pre_params.sinkhorn_iters = 20;
  pre_params.norm = norm.data();
  pre_params.normed = normed.data();
  pre_params.quantized = quantized.data();
  pre_params.post = post.data();
  pre_params.comb = comb.data();
  LaunchKernel(ReferenceManifest(), pre_params, {.threads = 2});

  Doubles expected, expected_post;
  for (size_t t = 0; t < 18; ++t) {
    const float* row = &streams[t * 4 * 128];
    const Doubles m = Mixes(row, hidden, fn);
    Doubles pre;
    for (size_t h = 0; h < 4; ++h) {
      pre.push_back(Logistic(m[h] * double{scale[0]} + double{base[h]}) + 1e-6);
      expected_post.push_back(2 * Logistic(m[4 + h] * double{scale[1]} + double{base[4 + h]}));
    }
    const Doubles x = MixedAndNormed(row, hidden, pre, norm);
    expected.insert(expected.end(), x.begin(), x.end());
    // The last step of the normalisation is over columns: sums of comb[:, j] are 1.
    for (size_t j = 0; j < 4; ++j) {
      double sum = 0;
      for (size_t h = 0; h < 4; ++h) sum += double{comb[t * 16 + h * 4 + j]};
      CHECK(sum == Approx(1).epsilon(1e-5));
    }
  }
  CHECK(RelativeDistance(normed, expected) < 5e-7);
  CHECK(quantized == normed);
  CHECK(RelativeDistance(post, expected_post) < 5e-7);

  const std::vector<int32_t> row_of{17, 3, 3, 0};
  Floats head(4 * 128);
  HcHeadParams head_params;
  head_params.rows = 4;
  head_params.row_of = row_of.data();
  head_params.hidden = hidden;
  head_params.streams = streams.data();
  head_params.fn = fn.data();
  head_params.base = base.data();
  head_params.scale = scale;
  head_params.hc_eps = head_params.norm_eps = 1e-6f;
  head_params.norm = norm.data();
  head_params.normed = head.data();
  LaunchKernel(ReferenceManifest(), head_params, {.threads = 2});
  Doubles expected_head;
  for (const int32_t t : row_of) {
    const auto row = expected.begin() + t * hidden;  // the same weights as hc_pre's first four
    expected_head.insert(expected_head.end(), row, row + hidden);
  }
  CHECK(RelativeDistance(head, expected_head) < 5e-7);

  // What was normed, and the streams' mean.
  Floats mixed(head.size()), mean(head.size());
  head_params.mixed = mixed.data();
  LaunchKernel(ReferenceManifest(), head_params, {.threads = 2});
  LaunchKernel(ReferenceManifest(),
               HcHeadParams{.rows = 4,
                            .row_of = row_of.data(),
                            .hidden = hidden,
                            .streams = streams.data(),
                            .quantized = mean.data(),
                            .quantized_width = hidden},
               {.threads = 2});
  Doubles normed_again, expected_mean;
  for (int64_t r = 0; r < 4; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      squares += std::pow(double{mixed[static_cast<size_t>(r * hidden + i)]}, 2);
    }
    for (int64_t i = 0; i < hidden; ++i) {
      const auto at = static_cast<size_t>(r * hidden + i);
      normed_again.push_back(mixed[at] / std::sqrt(squares / static_cast<double>(hidden) + 1e-6) *
                             Bf16ToFloat(norm[static_cast<size_t>(i)]));
      double sum = 0;
      for (int64_t h = 0; h < 4; ++h) {
        sum += streams[static_cast<size_t>((row_of[static_cast<size_t>(r)] * 4 + h) * hidden + i)];
      }
      expected_mean.push_back(sum / 4);
    }
  }
  CHECK(RelativeDistance(head, normed_again) < 5e-7);
  CHECK(RelativeDistance(mean, expected_mean) < 5e-7);
}

TEST_CASE("hc_post and mtp_combine") {
  const Floats streams = RandomFloats(160, 2 * 4 * 128), y = RandomFloats(161, 2 * 128);
  const Floats post = RandomFloats(162, 2 * 4), comb = RandomFloats(163, 2 * 16);
  Floats out(streams.size());
  HcPostParams params;
  params.rows = 2;
  params.hidden = 128;
  params.y = y.data();
  params.post = post.data();
  params.comb = comb.data();
  params.streams = streams.data();
  params.out = out.data();
  LaunchKernel(ReferenceManifest(), params, {});
  MtpCombineParams combine;
  Floats combined(streams.size());
  combine.rows = 2;
  combine.hidden = 128;
  combine.e = y.data();
  combine.h = streams.data();
  combine.streams = combined.data();
  LaunchKernel(ReferenceManifest(), combine, {});
  std::vector<double> mixed, added;
  for (size_t t = 0; t < 2; ++t) {
    for (size_t j = 0; j < 4; ++j) {
      for (size_t d = 0; d < 128; ++d) {
        double expected = double{post[t * 4 + j]} * y[t * 128 + d];
        for (size_t h = 0; h < 4; ++h) {
          expected += double{comb[t * 16 + h * 4 + j]} * streams[(t * 4 + h) * 128 + d];
        }
        mixed.push_back(expected);
        added.push_back(y[t * 128 + d] + streams[(t * 4 + j) * 128 + d]);
      }
    }
  }
  REQUIRE(test::FarElements(out, mixed, {.absolute = 1e-6}) == "");
  REQUIRE(test::FarElements(combined, added) == "");
}

}  // namespace
}  // namespace dsv4
