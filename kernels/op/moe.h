// SPDX-License-Identifier: Apache-2.0
// Contracts of the mixture-of-experts operators (model.md 4.5): the gate, and the routed experts
// with the shared expert.
#pragma once

#include <limits>

#include "kernels/op/launch_tensors.h"
#include "kernels/op/op.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

inline constexpr int32_t kMaxExpertsPerToken = 32;

// How often the gate chose an expert.
struct ExpertCounts {
  uint32_t last = 0;   // number of the last call that chose it
  uint32_t calls = 0;  // calls that chose it; each reads its weights once
};

// Chooses K experts for each row, with s = sqrt(softplus(gate . x)) in f32:
// - experts: tid2eid[token] in a hash-routed layer; else the K largest s + bias in descending order
//   (of equals the lower expert).
// - weights = s[experts] / sum(s[experts]) * routed_scale, without the bias.
// - A padding row (sequence_of -1) gets experts -1 and weights 0. Only backends that record steps
//   as graphs pass padding rows.
struct MoeGateParams {
  static constexpr Op kOp = Op::kMoeGate;
  int32_t rows = 0;                      // T
  int32_t experts_per_token = 0;         // K
  Bf16Weight gate{};                     // [E, D]
  const void* x = nullptr;               // [T, D] act, not quantised
  const int32_t* tokens = nullptr;       // [T], hash-routed layers
  const int32_t* sequence_of = nullptr;  // [T], see StepRows; null: no row is padding
  const int32_t* tid2eid = nullptr;      // [vocab, K]; null = scored
  const float* bias = nullptr;           // [E], scored layers
  float routed_scale = 0;
  int32_t* experts = nullptr;  // [T, K]
  float* weights = nullptr;    // [T, K]
  // Where experts move between device and host (lib/experts/expert_mover.h): counts the chosen
  // experts. Both null, or neither.
  ExpertCounts* counts = nullptr;  // [E]
  uint32_t* calls = nullptr;       // [1]: calls of this gate
};

// The routed experts of each row and the shared expert:
//   product = silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit) * weight
//   expert(x) = w2 . act_quant(product); of a w2 in a block format: w2 . product
//   y = sum of the row's K experts in their order, in f32, plus the shared expert
// - The shared expert is FP8 and has weight 1; the clamp applies to it, too. limit 0: no clamp.
// - Rounded: w1 x and w3 x (kRoundLinear), product (kRoundSwiglu), each expert's output
//   (kRoundExpertOutput), y (kRoundFfnOutput). act_quant 128 is kQuantExpertHidden.
// - In front of weights in block formats, x and product are rounded as in dense.h; x is not
//   quantised then.
// - Expert -1 (of a padding row) contributes nothing.
//
// ExpertPart splits this between ranks that have some rows of each matrix. Two calls together give
// the bits of kWhole:
// - kProducts computes the rounded products of the rank's rows of w1 and w3 into `products`. inter
//   is the rank's part of I.
// - kOutputs quantises the products of all ranks and computes the rank's columns of y. hidden is
//   its part of D: the rows of w2 and the width of y. x is not read.
enum class ExpertPart : int32_t { kWhole, kProducts, kOutputs };

// ExpertWave splits the operator into waves: calls that compute some of the experts each, because
// the weights of all do not fit into device memory at once. The calls differ only in `experts` and
// in `part`. Together they give the bits of kAll:
// - kFirst computes the shared expert and the experts of the first wave.
// - kNext computes the experts of another wave.
// - kSum adds up y. `experts` names all of the row's experts.
// kFirst and kNext do not write y. They write the output of expert i of row t to row t K + i of
// `outputs`, and the output of the shared expert to row T K + t. `experts` is one of these:
// - the experts of the wave, with -1 in place of all others;
// - complete: the wave's experts are those in [first_expert, end_expert).
enum class ExpertWave : int32_t { kAll, kFirst, kNext, kSum };

struct ExpertFfnParams {
  static constexpr Op kOp = Op::kExpertFfn;
  int32_t rows = 0;                                     // T
  int64_t hidden = 0;                                   // D, a multiple of 128
  int64_t inter = 0;                                    // I, a multiple of 128
  int32_t expert_count = 0;                             // E
  int32_t experts_per_token = 0;                        // K
  const ExpertWeights* const* experts_table = nullptr;  // [E]
  // Format of all routed experts if experts_table lies in device memory. On the host, each matrix
  // has a format of its own.
  ExpertFormat format = ExpertFormat::kMxfp4;
  ExpertBlocks blocks{};  // likewise, of kBlocks
  Fp8Weight shared_w1{}, shared_w3{}, shared_w2{};
  const int32_t* experts = nullptr;  // [T, K]
  const float* weights = nullptr;    // [T, K]
  float limit = 0;
  const void* x = nullptr;  // [T, D] act, quantised
  void* y = nullptr;        // [T, D] act
  ExpertPart part = ExpertPart::kWhole;
  // [T (K + 1), inter] act; unused with kWhole. The backend chooses the order of the rows, from
  // `experts` alone.
  void* products = nullptr;
  ExpertWave wave = ExpertWave::kAll;
  void* outputs = nullptr;  // [T (K + 1), D] act: between waves; null with kAll
  int32_t first_expert = 0, end_expert = std::numeric_limits<int32_t>::max();
};

absl::Status Validate(const MoeGateParams& params);
absl::Status Validate(const ExpertFfnParams& params);
Cost CostOf(const MoeGateParams& params);
// Counts the weights of E (1 - (1 - K / E)^T) experts: as many as T rows choose on average if all
// experts are equally likely. The actual choice may be in memory that the host cannot read.
Cost CostOf(const ExpertFfnParams& params);
LaunchTensors TensorsOf(const MoeGateParams& params, Device& device);
LaunchTensors TensorsOf(const ExpertFfnParams& params, Device& device);
CallDims DimsOf(const ExpertFfnParams& params);  // rows, n of an expert (its width), k: hidden

}  // namespace dsv4
