// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/device/device.h"

namespace dsv4 {
namespace {

double DistinctExperts(const ExpertFfnParams& p) {
  const double experts = p.expert_count;
  return experts * (1 - std::pow(1 - p.experts_per_token / experts, p.rows));
}

// The products of the routed experts of each row, then of the shared expert. Backends in host
// memory order the products of routed experts by expert.
LaunchTensor Products(const ExpertFfnParams& p, Device& device) {
  const int64_t pairs = int64_t{p.rows} * p.experts_per_token;
  LaunchTensor products = LaunchTensor::Act(p.products, pairs + p.rows, p.inter);
  if (!device.host_memory()) return products;
  products.stored_at.resize(static_cast<size_t>(products.rows));
  std::iota(products.stored_at.begin(), products.stored_at.end(), 0);
  std::vector<int64_t> sorted(products.stored_at.begin(), products.stored_at.begin() + pairs);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](int64_t a, int64_t b) { return p.experts[a] < p.experts[b]; });
  for (int64_t i = 0; i < pairs; ++i) {
    products.stored_at[static_cast<size_t>(sorted[static_cast<size_t>(i)])] = i;
  }
  return products;
}

}  // namespace

absl::Status Validate(const MoeGateParams& p) {
  DSV4_RETURN_IF_ERROR(Expect(p.rows >= 1 && p.experts_per_token >= 1 &&
                                  p.experts_per_token <= kMaxExpertsPerToken &&
                                  p.experts_per_token <= p.gate.n && p.gate.k % 128 == 0,
                              "moe_gate: rows ", p.rows, ", ", p.experts_per_token,
                              " experts a token of ", p.gate.n, ", hidden ", p.gate.k));
  return Expect(p.gate.data != nullptr && p.x != nullptr && p.experts != nullptr &&
                    p.weights != nullptr &&
                    (p.tid2eid != nullptr ? p.tokens != nullptr : p.bias != nullptr),
                "moe_gate: a null pointer");
}

Cost CostOf(const MoeGateParams& p) {
  const int64_t rows = p.rows;
  const int64_t row_bytes =
      p.gate.in_blocks() ? BlockBytes(p.gate.blocks, p.gate.k) : p.gate.k * kActBytes;
  return {
      .bytes = p.gate.n * row_bytes + rows * p.gate.k * kActBytes + rows * p.experts_per_token * 8,
      .flops = 2 * rows * p.gate.n * p.gate.k + rows * p.gate.n * 30};
}

LaunchTensors TensorsOf(const MoeGateParams& p, Device&) {
  return {
      {LaunchTensor::Act(p.x, p.rows, p.gate.k)},
      {{"experts", OutputFormat::kChoice,
        LaunchTensor::Int32(p.experts, p.rows, p.experts_per_token)},
       {"weights", OutputFormat::kF32, LaunchTensor::F32(p.weights, p.rows, p.experts_per_token)}}};
}

absl::Status Validate(const ExpertFfnParams& p) {
  DSV4_RETURN_IF_ERROR(Expect(
      p.rows >= 1 && p.hidden >= 1 && p.hidden % 128 == 0 && p.inter >= 1 && p.inter % 128 == 0 &&
          p.experts_per_token >= 1 && p.experts_per_token <= kMaxExpertsPerToken &&
          p.experts_per_token <= p.expert_count,
      "expert_ffn: rows ", p.rows, ", hidden ", p.hidden, ", inter ", p.inter, ", ",
      p.experts_per_token, " experts a token of ", p.expert_count));
  DSV4_RETURN_IF_ERROR(Expect(p.wave == ExpertWave::kFirst || p.wave == ExpertWave::kNext ||
                                  (p.first_expert <= 0 && p.end_expert >= p.expert_count),
                              "expert_ffn: experts ", p.first_expert, " to ", p.end_expert, " of ",
                              p.expert_count, " in a call that computes all of them"));
  return Expect(p.experts_table != nullptr && p.shared_w1.data != nullptr &&
                    p.shared_w3.data != nullptr && p.shared_w2.data != nullptr &&
                    p.experts != nullptr && p.weights != nullptr &&
                    (p.x != nullptr || p.part == ExpertPart::kOutputs) &&
                    (p.y != nullptr || p.part == ExpertPart::kProducts) &&
                    (p.products != nullptr || p.part == ExpertPart::kWhole) &&
                    (p.outputs != nullptr || p.wave == ExpertWave::kAll),
                "expert_ffn: a null pointer");
}

Cost CostOf(const ExpertFfnParams& p) {
  const int64_t matrices = p.part == ExpertPart::kWhole      ? 3
                           : p.part == ExpertPart::kProducts ? 2
                                                             : 1;
  const int64_t rows = p.rows, weights = matrices * p.hidden * p.inter;
  const int64_t shared_bytes =
      weights + matrices * CeilDiv(p.hidden, kFp8Block) * CeilDiv(p.inter, kFp8Block);
  const int64_t expert_bytes = p.format == ExpertFormat::kFp8 ? weights
                               : p.format == ExpertFormat::kNvfp4
                                   ? weights / 2 + weights / kNvfp4Run
                                   : weights / 2 + weights / kFp4Run;
  const int64_t values = p.part == ExpertPart::kWhole
                             ? 2 * p.hidden
                             : p.hidden + (p.experts_per_token + 1) * p.inter;  // of a row
  return {.bytes = std::llround(DistinctExperts(p) * static_cast<double>(expert_bytes)) +
                   shared_bytes + rows * values * kActBytes,
          .flops = 2 * rows * weights * (p.experts_per_token + 1)};
}

LaunchTensors TensorsOf(const ExpertFfnParams& p, Device& device) {
  LaunchTensors all;
  // Only the sum of the waves is compared. It stands for both halves of the experts.
  if (p.wave == ExpertWave::kSum) {
    all.out = {{"y", OutputFormat::kSum, LaunchTensor::Act(p.y, p.rows, p.hidden)}};
    all.stands_for = 2;
  }
  if (p.wave != ExpertWave::kAll) return all;
  const LaunchTensor experts = LaunchTensor::Int32(p.experts, p.rows, p.experts_per_token);
  if (p.part == ExpertPart::kOutputs) {
    all.in = {Products(p, device), experts};
  } else {
    all.in = {p.format == ExpertFormat::kBlocks ? LaunchTensor::Act(p.x, p.rows, p.hidden)
                                                : LaunchTensor::Quantized(p.x, p.rows, p.hidden),
              experts, LaunchTensor::F32(p.weights, p.rows, p.experts_per_token)};
  }
  if (p.part == ExpertPart::kProducts) {
    all.out = {{"products", OutputFormat::kCodes, Products(p, device)}};
  } else {
    all.out = {{"y", OutputFormat::kSum, LaunchTensor::Act(p.y, p.rows, p.hidden)}};
  }
  return all;
}

CallDims DimsOf(const ExpertFfnParams& p) {
  return {{"rows", p.rows}, {"n", p.inter}, {"k", p.hidden}};
}

}  // namespace dsv4
