// SPDX-License-Identifier: Apache-2.0
// hc_pre, hc_post, hc_head and mtp_combine.
#include "kernels/reference/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"

namespace dsv4::reference {
namespace {

// fn . x, in double: f32 products are exact there, and the mixing numbers scale every element of a
// row, so that noise in them moves all of its roundings.
double Product(const float* fn, const float* x, int64_t count) {
  double sums[4] = {};
  for (int64_t i = 0; i < count; i += 4) {
    for (int64_t l = 0; l < 4; ++l) sums[l] += double{fn[i + l]} * x[i + l];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// m [outputs] = fn . flatten(streams) * rsqrt(mean(flatten(streams)^2) + eps).
void MixRow(const float* streams, int64_t hidden, const float* fn, int64_t outputs, float eps,
            float* m) {
  const int64_t width = kStreams * hidden;
  const double inverse = InverseRms(streams, width, eps);
  for (int64_t o = 0; o < outputs; ++o) {
    m[o] = static_cast<float>(Product(fn + o * width, streams, width) * inverse);
  }
}

// out = sum_h pre[h] * streams[h, :], then rounding.
void MixStreams(const LaunchContext& context, const float* pre, const float* streams,
                int64_t hidden, float* out) {
  for (int64_t d = 0; d < hidden; ++d) {
    double sum = 0;
    for (int64_t h = 0; h < kStreams; ++h) sum += double{pre[h]} * streams[h * hidden + d];
    out[d] = static_cast<float>(sum);
  }
  Round(context, Point::kRoundHcPre, out, hidden);
}

// The mixed streams, then RMSNorm.
void PreAndNorm(const LaunchContext& context, const float* pre, const float* streams,
                int64_t hidden, const uint16_t* norm, float norm_eps, float* out) {
  MixStreams(context, pre, streams, hidden, out);
  RmsNormRow(out, hidden, norm, norm_eps, out);
  Round(context, Point::kRoundRmsNorm, out, hidden);
}

void DivideRows(double eps, double* comb) {
  for (int64_t h = 0; h < kStreams; ++h) {
    double sum = 0;
    for (int64_t j = 0; j < kStreams; ++j) sum += comb[h * kStreams + j];
    for (int64_t j = 0; j < kStreams; ++j) comb[h * kStreams + j] /= sum + eps;
  }
}

void DivideColumns(double eps, double* comb) {
  for (int64_t j = 0; j < kStreams; ++j) {
    double sum = 0;
    for (int64_t h = 0; h < kStreams; ++h) sum += comb[h * kStreams + j];
    for (int64_t h = 0; h < kStreams; ++h) comb[h * kStreams + j] /= sum + eps;
  }
}

double Logit(float m, float scale, float base) { return double{m} * scale + base; }

}  // namespace

void HyperConnectionWeights(const float* m, const float* scale, const float* base, float eps,
                            int32_t iterations, float* pre, float* post, float* comb) {
  for (int64_t h = 0; h < kStreams; ++h) {
    pre[h] = static_cast<float>(Sigmoid(Logit(m[h], scale[0], base[h])) + eps);
    post[h] = static_cast<float>(2 * Sigmoid(Logit(m[kStreams + h], scale[1], base[kStreams + h])));
  }
  double mixed[kStreams * kStreams];
  for (int64_t h = 0; h < kStreams; ++h) {
    double logits[kStreams];
    for (int64_t j = 0; j < kStreams; ++j) {
      const int64_t i = 2 * kStreams + h * kStreams + j;
      logits[j] = Logit(m[i], scale[2], base[i]);
    }
    const double largest = *std::max_element(logits, logits + kStreams);
    double sum = 0;
    for (double& logit : logits) {
      logit = std::exp(logit - largest);
      sum += logit;
    }
    for (int64_t j = 0; j < kStreams; ++j) mixed[h * kStreams + j] = logits[j] / sum + eps;
  }
  DivideColumns(eps, mixed);
  for (int32_t i = 1; i < iterations; ++i) {
    DivideRows(eps, mixed);
    DivideColumns(eps, mixed);
  }
  std::transform(mixed, mixed + kStreams * kStreams, comb,
                 [](double value) { return static_cast<float>(value); });
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  if (params.update.y != nullptr) {
    LaunchHcPost(context, UpdateOf(params));
    return LaunchHcPre(context, AfterUpdate(params));
  }
  const float* streams = static_cast<const float*>(params.streams);
  const int64_t hidden = params.hidden;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    const float* row = streams + t * kStreams * hidden;
    float m[kMixes];
    MixRow(row, hidden, params.fn, kMixes, params.norm_eps, m);
    float pre[kStreams];
    HyperConnectionWeights(m, params.scale, params.base, params.hc_eps, params.sinkhorn_iters, pre,
                           params.post + t * kStreams, params.comb + t * kStreams * kStreams);
    float* normed = static_cast<float*>(params.normed) + t * hidden;
    float* quantized = static_cast<float*>(params.quantized) + t * hidden;
    PreAndNorm(context, pre, row, hidden, params.norm, params.norm_eps, normed);
    std::copy(normed, normed + hidden, quantized);
    ActQuant(context, Point::kQuantLinearInput, quantized, hidden, kFp8Block);
  });
}

void LaunchHcPost(const LaunchContext& context, const HcPostParams& params) {
  const int64_t hidden = params.hidden;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    const float* y = static_cast<const float*>(params.y) + t * hidden;
    const float* streams = static_cast<const float*>(params.streams) + t * kStreams * hidden;
    float* out = static_cast<float*>(params.out) + t * kStreams * hidden;
    const float* post = params.post + t * kStreams;
    const float* comb = params.comb + t * kStreams * kStreams;
    for (int64_t d = 0; d < hidden; ++d) {
      float mixed[kStreams];  // complete before the first store: out may be streams
      for (int64_t j = 0; j < kStreams; ++j) {
        double sum = double{post[j]} * y[d];
        for (int64_t h = 0; h < kStreams; ++h) {
          sum += double{comb[h * kStreams + j]} * streams[h * hidden + d];
        }
        mixed[j] = static_cast<float>(sum);
      }
      for (int64_t j = 0; j < kStreams; ++j) out[j * hidden + d] = mixed[j];
    }
    Round(context, Point::kRoundHcPost, out, kStreams * hidden);
  });
}

void LaunchHcHead(const LaunchContext& context, const HcHeadParams& params) {
  const float* streams = static_cast<const float*>(params.streams);
  const int64_t hidden = params.hidden;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t r, int) {
    const int64_t t = params.row_of == nullptr ? r : params.row_of[r];
    const float* row = streams + t * kStreams * hidden;
    if (params.fn == nullptr) {
      constexpr float kQuarters[kStreams] = {0.25f, 0.25f, 0.25f, 0.25f};
      float* mean = static_cast<float*>(params.quantized) + r * params.quantized_width +
                    params.quantized_column;
      MixStreams(context, kQuarters, row, hidden, mean);
      if (params.quantise) {
        ActQuant(context, Point::kQuantLinearInput, mean, hidden, kFp8Block);
      }
      return;
    }
    float m[kStreams], pre[kStreams];
    MixRow(row, hidden, params.fn, kStreams, params.norm_eps, m);
    for (int64_t h = 0; h < kStreams; ++h) {
      pre[h] =
          static_cast<float>(Sigmoid(Logit(m[h], params.scale[0], params.base[h])) + params.hc_eps);
    }
    if (params.mixed != nullptr) {
      MixStreams(context, pre, row, hidden, static_cast<float*>(params.mixed) + r * hidden);
    }
    PreAndNorm(context, pre, row, hidden, params.norm, params.norm_eps,
               static_cast<float*>(params.normed) + r * hidden);
  });
}

void LaunchMtpCombine(const LaunchContext& context, const MtpCombineParams& params) {
  const int64_t hidden = params.hidden;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    const float* e = static_cast<const float*>(params.e) + t * hidden;
    const float* h = static_cast<const float*>(params.h) + t * kStreams * hidden;
    float* out = static_cast<float*>(params.streams) + t * kStreams * hidden;
    for (int64_t i = 0; i < kStreams * hidden; ++i) out[i] = e[i % hidden] + h[i];
    Round(context, Point::kRoundLinear, out, kStreams * hidden);
  });
}

}  // namespace dsv4::reference
