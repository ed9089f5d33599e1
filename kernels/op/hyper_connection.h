// SPDX-License-Identifier: Apache-2.0
// Contracts of the hyper-connection operators (model.md 4.1, 4.6, 4.7): hc_pre with the sub-layer's
// RMSNorm and quantiser, hc_post, hc_head with the final norm, and the MTP block's input.
#pragma once

#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"

namespace dsv4 {

// An hc_post that hc_pre computes on its streams first. Fields as in HcPostParams.
struct HcUpdate {
  const void* y = nullptr;  // null = none
  const float* post = nullptr;
  const float* comb = nullptr;
  void* out = nullptr;  // may be streams itself
};

// For each row, in f32 unless rounded:
//   X = streams; with an update, the output of its hc_post (the same bits)
//   m = (fn . flatten(X)) * rsqrt(mean(flatten(X)^2) + norm_eps)
//   pre, post, comb from m by sigmoid and Sinkhorn
//   x = sum_h pre[h] X[h] (kRoundHcPre)
//   normed = RMSNorm(x; norm) (kRoundRmsNorm)
//   quantized = act_quant(normed, 128) round trip (kQuantLinearInput)
struct HcPreParams {
  static constexpr Op kOp = Op::kHcPre;
  int32_t rows = 0;               // T
  int64_t hidden = 0;             // D, a multiple of 128
  const void* streams = nullptr;  // [T, 4, D] act
  const float* fn = nullptr;      // [24, 4 D]
  const float* base = nullptr;    // [24]
  const float* scale = nullptr;   // [3]: pre, post, comb
  float hc_eps = 0, norm_eps = 0;
  int32_t sinkhorn_iters = 0;      // column steps
  const uint16_t* norm = nullptr;  // [D] bf16
  void* normed = nullptr;          // [T, D] act
  void* quantized = nullptr;       // [T, D] act
  float* post = nullptr;           // [T, 4]; may be update.post
  float* comb = nullptr;           // [T, 4, 4]: comb[h][j]; may be update.comb
  HcUpdate update = {};
};

// out[t, j, :] = post[t, j] * y[t, :] + sum_h comb[t, h, j] * streams[t, h, :], rounded
// (kRoundHcPost).
struct HcPostParams {
  static constexpr Op kOp = Op::kHcPost;
  int32_t rows = 0;               // T
  int64_t hidden = 0;             // D
  const void* y = nullptr;        // [T, D] act
  const float* post = nullptr;    // [T, 4]
  const float* comb = nullptr;    // [T, 4, 4]
  const void* streams = nullptr;  // [T, 4, D] act
  void* out = nullptr;            // [T, 4, D] act; may be streams itself
};

// The update of `p` as a call of hc_post.
constexpr HcPostParams UpdateOf(const HcPreParams& p) {
  return {p.rows, p.hidden, p.update.y, p.update.post, p.update.comb, p.streams, p.update.out};
}

// `p` after its update was computed: hc_pre alone, on the updated streams.
constexpr HcPreParams AfterUpdate(HcPreParams p) {
  p.streams = p.update.out;
  p.update = {};
  return p;
}

// For the rows that row_of names, with X and m as in hc_pre:
//   pre = sigmoid(m * scale[0] + base) + hc_eps
//   mixed = sum_h pre[h] X[h] (kRoundHcPre)
//   normed = RMSNorm(mixed; norm) (kRoundRmsNorm)
// Without fn, pre = 1/4: mixed is the mean of the streams. Then nothing is normed, and
//   quantized = act_quant(mixed, 128) round trip (kQuantLinearInput), or mixed without `quantise`
struct HcHeadParams {
  static constexpr Op kOp = Op::kHcHead;
  int32_t rows = 0;                 // R, of the output
  const int32_t* row_of = nullptr;  // [R]: row of streams; null = the first R rows
  int64_t hidden = 0;               // D
  const void* streams = nullptr;    // [T, 4, D] act
  const float* fn = nullptr;        // [4, 4 D]
  const float* base = nullptr;      // [4]
  const float* scale = nullptr;     // [1]
  float hc_eps = 0, norm_eps = 0;
  const uint16_t* norm = nullptr;  // [D] bf16
  void* normed = nullptr;          // [R, D] act
  void* mixed = nullptr;           // [R, D] act, with fn; may be null
  // [R, quantized_width] act, without fn. Columns quantized_column .. quantized_column + D - 1 are
  // written; quantized_column and D are multiples of 128.
  void* quantized = nullptr;
  int64_t quantized_width = 0, quantized_column = 0;
  bool quantise = true;  // false: `quantized` is for a weight in blocks, which rounds for itself
};

// streams[t, j, :] = e[t, :] + h[t, j, :] for the 4 streams j, rounded (kRoundLinear).
struct MtpCombineParams {
  static constexpr Op kOp = Op::kMtpCombine;
  int32_t rows = 0;         // T
  int64_t hidden = 0;       // D
  const void* e = nullptr;  // [T, D] act
  const void* h = nullptr;  // [T, 4, D] act
  void* streams = nullptr;  // [T, 4, D] act; may be h
};

absl::Status Validate(const HcPreParams& params);
absl::Status Validate(const HcPostParams& params);
absl::Status Validate(const HcHeadParams& params);
absl::Status Validate(const MtpCombineParams& params);
Cost CostOf(const HcPreParams& params);
Cost CostOf(const HcPostParams& params);
Cost CostOf(const HcHeadParams& params);
Cost CostOf(const MtpCombineParams& params);
LaunchTensors TensorsOf(const HcPreParams& params, Device& device);
LaunchTensors TensorsOf(const HcPostParams& params, Device& device);
LaunchTensors TensorsOf(const HcHeadParams& params, Device& device);
LaunchTensors TensorsOf(const MtpCombineParams& params, Device& device);

}  // namespace dsv4
