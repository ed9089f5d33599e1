// SPDX-License-Identifier: Apache-2.0
// hc_pre, hc_post, hc_head and mtp_combine.
#include "kernels/reference/hyper_connection.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"
#include "kernels/reference/scratch.h"

namespace dsv4::reference {
namespace {

struct MixesPlan {
  MixesPlan(std::byte* base, int64_t rows, int64_t outputs, int64_t hidden, int threads)
      : scratch(base),
        products(scratch.Take<float>(rows * outputs)),
        matmul(scratch.Take<float>(MatmulWorkspaceFloats(rows, kStreams * hidden, threads))) {}
  Scratch scratch;
  float* products;  // [rows, outputs]: fn . flatten(X)
  float* matmul;
};

void MixProducts(const LaunchContext& context, const MixesPlan& plan, const float* streams,
                 const int32_t* row_of, int64_t rows, int64_t hidden, const float* fn,
                 int64_t outputs) {
  MatmulParams matmul;
  matmul.rows = rows;
  matmul.k = kStreams * hidden;
  matmul.x = streams;
  matmul.x_stride = matmul.k;
  matmul.row_of = row_of;
  matmul.n = outputs;
  matmul.y = plan.products;
  matmul.y_stride = outputs;
  Matmul(
      context, matmul,
      [&](int64_t n, float* out) { std::copy_n(fn + n * matmul.k, matmul.k, out); }, plan.matmul);
}

// out = sum_h pre[h] * streams[h, :], then rounding and RMSNorm.
void PreAndNorm(const LaunchContext& context, const float* pre, const float* streams,
                int64_t hidden, const uint16_t* norm, float norm_eps, float* out) {
  for (int64_t d = 0; d < hidden; ++d) {
    double sum = 0;
    for (int64_t h = 0; h < kStreams; ++h) sum += double{pre[h]} * streams[h * hidden + d];
    out[d] = static_cast<float>(sum);
  }
  Round(context, Point::kRoundHcPre, out, hidden);
  RmsNormRow(out, hidden, norm, norm_eps, out);
  Round(context, Point::kRoundRmsNorm, out, hidden);
}

void DivideRows(float eps, float* comb) {
  for (int64_t h = 0; h < kStreams; ++h) {
    float sum = 0;
    for (int64_t j = 0; j < kStreams; ++j) sum += comb[h * kStreams + j];
    for (int64_t j = 0; j < kStreams; ++j) comb[h * kStreams + j] /= sum + eps;
  }
}

void DivideColumns(float eps, float* comb) {
  for (int64_t j = 0; j < kStreams; ++j) {
    float sum = 0;
    for (int64_t h = 0; h < kStreams; ++h) sum += comb[h * kStreams + j];
    for (int64_t h = 0; h < kStreams; ++h) comb[h * kStreams + j] /= sum + eps;
  }
}

}  // namespace

void HyperConnectionWeights(const float* m, const float* scale, const float* base, float eps,
                            int32_t iterations, float* pre, float* post, float* comb) {
  for (int64_t h = 0; h < kStreams; ++h) {
    pre[h] = static_cast<float>(Sigmoid(m[h] * scale[0] + base[h]) + eps);
    post[h] = static_cast<float>(2 * Sigmoid(m[kStreams + h] * scale[1] + base[kStreams + h]));
  }
  for (int64_t h = 0; h < kStreams; ++h) {
    float logits[kStreams];
    for (int64_t j = 0; j < kStreams; ++j) {
      const int64_t i = 2 * kStreams + h * kStreams + j;
      logits[j] = m[i] * scale[2] + base[i];
    }
    const float largest = *std::max_element(logits, logits + kStreams);
    float sum = 0;
    for (float& logit : logits) {
      logit = std::exp(logit - largest);
      sum += logit;
    }
    for (int64_t j = 0; j < kStreams; ++j) comb[h * kStreams + j] = logits[j] / sum + eps;
  }
  DivideColumns(eps, comb);
  for (int32_t i = 1; i < iterations; ++i) {
    DivideRows(eps, comb);
    DivideColumns(eps, comb);
  }
}

void LaunchHcPre(const LaunchContext& context, const HcPreParams& params) {
  CpuStream& stream = StreamOf(context);
  const float* streams = static_cast<const float*>(params.streams);
  const int64_t hidden = params.hidden;
  const MixesPlan plan(context.workspace, params.rows, kMixes, hidden, stream.threads());
  MixProducts(context, plan, streams, nullptr, params.rows, hidden, params.fn, kMixes);
  stream.ParallelFor(params.rows, [&](int64_t t, int) {
    const float* row = streams + t * kStreams * hidden;
    float* m = plan.products + t * kMixes;
    const double inverse = InverseRms(row, kStreams * hidden, params.norm_eps);
    for (int64_t i = 0; i < kMixes; ++i) {
      m[i] = static_cast<float>(m[i] * inverse);
    }
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

int64_t HcPreWorkspace(const HcPreParams& params, int threads) {
  return MixesPlan(nullptr, params.rows, kMixes, params.hidden, threads).scratch.bytes();
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
  CpuStream& stream = StreamOf(context);
  const float* streams = static_cast<const float*>(params.streams);
  const int64_t hidden = params.hidden;
  const MixesPlan plan(context.workspace, params.rows, kStreams, hidden, stream.threads());
  MixProducts(context, plan, streams, params.row_of, params.rows, hidden, params.fn, kStreams);
  stream.ParallelFor(params.rows, [&](int64_t r, int) {
    const int64_t t = params.row_of == nullptr ? r : params.row_of[r];
    const float* row = streams + t * kStreams * hidden;
    const float* m = plan.products + r * kStreams;
    const double inverse = InverseRms(row, kStreams * hidden, params.norm_eps);
    float pre[kStreams];
    for (int64_t h = 0; h < kStreams; ++h) {
      pre[h] = static_cast<float>(Sigmoid(m[h] * inverse * params.scale[0] + params.base[h]) +
                                  params.hc_eps);
    }
    PreAndNorm(context, pre, row, hidden, params.norm, params.norm_eps,
               static_cast<float*>(params.normed) + r * hidden);
  });
}

int64_t HcHeadWorkspace(const HcHeadParams& params, int threads) {
  return MixesPlan(nullptr, params.rows, kStreams, params.hidden, threads).scratch.bytes();
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
