// SPDX-License-Identifier: Apache-2.0
// Contracts of the mixture-of-experts operators (model.md 4.5): the gate, and the routed experts
// with the shared expert.
#pragma once

#include <limits>

#include "kernels/op/op.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

inline constexpr int32_t kMaxExpertsPerToken = 32;

// How often an expert was chosen, as a gate counts it.
struct ExpertCounts {
  uint32_t last = 0;   // call that chose it
  uint32_t calls = 0;  // that did: each reads its weights once
};

// s = sqrt(softplus(gate . x)) in f32. Experts: tid2eid[token] where the layer is hash-routed, else
// the top K of s + bias (ties: the lowest expert; bias only selects), by descending s + bias.
// weights = s[experts] / sum(s[experts]) * routed_scale. A row of padding (sequence_of -1), of
// which only backends with recorded steps get any, has experts -1 and weights 0.
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
  // On a device whose experts move (lib/model/expert_mover.h): counts what rows choose. Both or
  // none.
  ExpertCounts* counts = nullptr;  // [E]
  uint32_t* calls = nullptr;       // [1], with these counts
};

// expert(x) = w2 . act_quant(silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit) * weight): the
// linears' outputs rounded (kRoundLinear), the product rounded (kRoundSwiglu) before act_quant 128
// (kQuantExpertHidden), each expert's output rounded (kRoundExpertOutput); y = sum over the row's K
// experts in their order, in f32, plus the shared expert (weight 1, FP8), rounded
// (kRoundFfnOutput). The clamp holds for the shared expert too; limit 0 = none. Expert -1, of a row
// of padding, is none.
//
// A rank with some rows of the matrices computes the two halves by calls of their own. kProducts
// leaves the rounded products of its rows of w1 and w3 in `products`: inter is then the local I.
// kOutputs quantises the products of all ranks, there or elsewhere, and computes the rest: hidden
// is then the local D, the rows of w2 and the width of y; x is not read. Both give the bits of
// kWhole.
enum class ExpertPart : int32_t { kWhole, kProducts, kOutputs };

// Experts whose weights come one after another are computed in turns: calls alike but for `experts`
// and the part of a rank. kFirst computes the shared expert and those that `experts` names in this
// call, kNext those that it names, -1 standing for the others; they leave each expert's output of
// a row in `outputs`, and no y: that of a row's i-th expert in row K + i, and behind all of these
// the shared expert's of each row. kSum then has all of them in `experts`, and adds up y. Together
// they give the bits of kAll. kFirst and kNext may also have all of them in `experts`, and compute
// those from first_expert to before end_expert.
enum class ExpertTurn : int32_t { kAll, kFirst, kNext, kSum };

struct ExpertFfnParams {
  static constexpr Op kOp = Op::kExpertFfn;
  int32_t rows = 0;                                     // T
  int64_t hidden = 0;                                   // D, a multiple of 128
  int64_t inter = 0;                                    // I, a multiple of 128
  int32_t expert_count = 0;                             // E
  int32_t experts_per_token = 0;                        // K
  const ExpertWeights* const* experts_table = nullptr;  // [E]
  // Of all routed experts, where their table is in a device's memory; on the host each matrix has
  // its own.
  ExpertFormat format = ExpertFormat::kMxfp4;
  Fp8Weight shared_w1{}, shared_w3{}, shared_w2{};  // kNext and kSum: may be null
  const int32_t* experts = nullptr;                 // [T, K]
  const float* weights = nullptr;                   // [T, K]
  float limit = 0;
  const void* x = nullptr;  // [T, D] act, quantised
  void* y = nullptr;        // [T, D] act; of kFirst and kNext: may be null
  ExpertPart part = ExpertPart::kWhole;
  // [T (K + 1), inter] act, but for kWhole. The order of these rows is the backend's, and follows
  // from `experts` alone.
  void* products = nullptr;
  ExpertTurn turn = ExpertTurn::kAll;
  void* outputs = nullptr;  // [T (K + 1), D] act: between turns; null with kAll
  int32_t first_expert = 0, end_expert = std::numeric_limits<int32_t>::max();
};

absl::Status Validate(const MoeGateParams& params);
absl::Status Validate(const ExpertFfnParams& params);
Cost CostOf(const MoeGateParams& params);
// Counts each expert's weights once, of as many experts as T rows choose on average when they
// choose alike: E (1 - (1 - K / E)^T). What they did choose may lie where the host cannot read.
Cost CostOf(const ExpertFfnParams& params);
CallDims DimsOf(const ExpertFfnParams& params);  // rows, n of an expert (its width), k: hidden

}  // namespace dsv4
