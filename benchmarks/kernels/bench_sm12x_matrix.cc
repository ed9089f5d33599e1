// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's matrix operators at the model's shapes, on so many copies of the weights that
// none is found in L2 (sm12x_bench.h).
#include <array>
#include <numeric>
#include <vector>

#include "benchmarks/kernels/sm12x_bench.h"
#include "benchmarks/kernels/sm12x_linears.h"
#include "kernels/op/dense.h"
#include "kernels/op/moe.h"
#include "kernels/op/pack_weight.h"
#include "kernels/sm12x/packed_layout.h"

namespace dsv4 {
namespace {

Fp8Weight NewFp8(int64_t n, int64_t k) {
  const WeightBytes bytes = PackedWeightBytes(WeightFormat::kFp8, n, k);
  return {Random<uint8_t>(bytes.data, kFp8Codes), Random<uint8_t>(bytes.scale, kScaleBytes), n, k};
}
ExpertMatrix NewExpert(ExpertFormat format, int64_t n, int64_t k) {
  const auto weight = [&](WeightFormat packed, RandomBits data, RandomBits scale) {
    const WeightBytes bytes = PackedWeightBytes(packed, n, k);
    return Fp4Weight{Random<uint8_t>(bytes.data, data), Random<uint8_t>(bytes.scale, scale), n, k};
  };
  if (format == ExpertFormat::kMxfp4) return weight(WeightFormat::kFp4, kAnyBits, kScaleBytes);
  if (format == ExpertFormat::kNvfp4) {
    const Fp4Weight w = weight(WeightFormat::kNvfp4, kAnyBits, kFp8Scales);
    return Nvfp4Weight{w.data, w.scale, n, k, 0.01f};
  }
  const Fp4Weight w = weight(WeightFormat::kFp8F32, kFp8Codes, kPositiveF32);
  return Fp8Weight{w.data, nullptr, n, k, reinterpret_cast<const float*>(w.scale)};
}
Bf16Weight NewBf16(int64_t n, int64_t k) {
  return {Random<uint16_t>(PackedWeightBytes(WeightFormat::kBf16, n, k).data, kBf16Numbers), n, k};
}

constexpr int32_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 48, 64, 128, 256, 1024, 4096};
constexpr int32_t kMostRows = 4096;

void BenchLinears(Bench& bench) {
  for (const LinearShape& shape : kLinearShapes) {
    if (!bench.Wants(shape.name)) continue;
    const bool is_fp8 = shape.op == Op::kLinearFp8;
    const int64_t n = std::accumulate(shape.n.begin(), shape.n.end(), int64_t{0});
    std::vector<LinearFp8Params> fp8(CopiesBeyondL2(n * shape.k * (is_fp8 ? 1 : 2)));
    std::vector<LinearBf16Params> bf16(fp8.size());
    const int32_t most = n > 60000 ? 256 : kMostRows;
    auto* x = Random<std::byte>(most * shape.k * 2, is_fp8 ? kFp8Codes : kBf16Numbers);
    auto* y = Filled<float>(most * n * 4, 0);
    for (size_t copy = 0; copy < fp8.size(); ++copy) {
      fp8[copy].k = bf16[copy].k = shape.k;
      fp8[copy].x = bf16[copy].x = x;
      float* to = y;
      for (size_t i = 0; i < shape.n.size() && shape.n[i] > 0; ++i) {
        const int64_t width = shape.n[i];
        fp8[copy].part_count = bf16[copy].part_count = static_cast<int32_t>(i + 1);
        if (is_fp8) {
          fp8[copy].parts[i] = {NewFp8(width, shape.k), to};
        } else {
          // Compressors and logits stay in f32.
          bf16[copy].parts[i] = {NewBf16(width, shape.k), to, width == kIndexerHeads};
        }
        to += most * width;
      }
    }
    for (const int32_t rows : kRowCounts) {
      if (rows > most) continue;
      for (auto& p : fp8) p.rows = rows;
      for (auto& p : bf16) p.rows = rows;
      if (is_fp8) {
        bench.Run(shape.name, fp8, CostOf(fp8[0]));
      } else {
        bench.Run(shape.name, bf16, CostOf(bf16[0]));
      }
    }
    cudaFree(x);
    cudaFree(y);
    for (auto& p : fp8) {
      for (auto& part : p.parts) {
        cudaFree(const_cast<uint8_t*>(part.w.data));
        cudaFree(const_cast<uint8_t*>(part.w.scale));
      }
    }
    for (auto& p : bf16) {
      for (auto& part : p.parts) cudaFree(const_cast<uint16_t*>(part.w.data));
    }
  }
}

void BenchOutputGroups(Bench& bench, const char* name, int64_t groups) {
  if (!bench.Wants(name)) return;
  OutputGroupsParams p;
  p.groups = groups;
  p.rank = 1024;
  p.group_width = 4096;
  p.o = Random<std::byte>(kMostRows * p.groups * p.group_width * 2, kBf16Numbers);
  p.y = Filled<std::byte>(kMostRows * p.groups * p.rank * 2, 0);
  std::vector<OutputGroupsParams> calls(CopiesBeyondL2(p.groups * p.rank * p.group_width), p);
  for (auto& call : calls) call.wo_a = NewFp8(p.groups * p.rank, p.group_width);
  for (const int32_t rows : kRowCounts) {
    for (auto& call : calls) call.rows = rows;
    bench.Run(name, calls, CostOf(calls[0]));
  }
}

constexpr int32_t kExperts = 256, kChosen = 6;
constexpr int64_t kHidden = 4096;

void BenchGate(Bench& bench) {
  if (!bench.Wants("moe_gate")) return;
  MoeGateParams p;
  p.experts_per_token = kChosen;
  p.x = Random<std::byte>(kMostRows * kHidden * 2, kBf16Numbers);
  p.bias = Random<float>(kExperts * 4, kF32Numbers);
  p.routed_scale = 1.5f;
  p.experts = Filled<int32_t>(kMostRows * kChosen * 4, 0);
  p.weights = Filled<float>(kMostRows * kChosen * 4, 0);
  std::vector<MoeGateParams> calls(CopiesBeyondL2(kExperts * kHidden * 2), p);
  for (auto& call : calls) call.gate = NewBf16(kExperts, kHidden);
  for (const int32_t rows : kRowCounts) {
    for (auto& call : calls) call.rows = rows;
    bench.Run("moe_gate", calls, CostOf(calls[0]));
  }
}

// Two layers' experts; each call goes to its own experts.
void BenchExperts(Bench& bench, const char* name, int64_t inter, ExpertFormat format) {
  if (!bench.Wants(name)) return;
  constexpr int kLayers = 2;
  ExpertFfnParams layers[kLayers];
  for (ExpertFfnParams& p : layers) {
    p.hidden = kHidden;
    p.inter = inter;
    p.expert_count = kExperts;
    p.experts_per_token = kChosen;
    p.format = format;
    std::vector<ExpertWeights> experts;
    for (int e = 0; e < kExperts; ++e) {
      experts.push_back({NewExpert(format, inter, kHidden), NewExpert(format, inter, kHidden),
                         NewExpert(format, kHidden, inter)});
    }
    const ExpertWeights* on_device = Uploaded(experts);
    std::vector<const ExpertWeights*> table;
    for (int e = 0; e < kExperts; ++e) table.push_back(on_device + e);
    p.experts_table = Uploaded(table);
    p.shared_w1 = NewFp8(inter, kHidden);
    p.shared_w3 = NewFp8(inter, kHidden);
    p.shared_w2 = NewFp8(kHidden, inter);
    p.weights = Random<float>(kMostRows * kChosen * 4, kPositiveF32);
    p.limit = 10;
    p.x = Random<std::byte>(kMostRows * kHidden * 2, kFp8Codes);
    p.y = Filled<std::byte>(kMostRows * kHidden * 2, 0);
  }
  for (const int32_t rows : kRowCounts) {
    std::vector<ExpertFfnParams> calls;
    Cost cost;
    uint32_t random = 1;
    for (int i = 0; i < 12; ++i) {
      ExpertFfnParams p = layers[i % kLayers];
      p.rows = rows;
      std::vector<int32_t> experts;
      for (int32_t t = 0; t < rows; ++t) {
        std::array<bool, kExperts> taken{};
        for (int32_t k = 0; k < kChosen;) {
          random = random * 1664525u + 1013904223u;
          const uint32_t e = random >> 24;
          if (taken[e]) continue;
          taken[e] = true;
          experts.push_back(static_cast<int32_t>(e));
          ++k;
        }
      }
      p.experts = experts.data();
      const Cost call_cost = CostOf(p);
      cost.bytes += call_cost.bytes;
      cost.flops += call_cost.flops;
      p.experts = Uploaded(experts);
      calls.push_back(p);
    }
    cost.bytes /= static_cast<int64_t>(calls.size());
    cost.flops /= static_cast<int64_t>(calls.size());
    bench.Run(name, calls, cost);
  }
}

}  // namespace

void BenchMatrixOperators(Bench& bench) {
  BenchLinears(bench);
  BenchOutputGroups(bench, "output_groups", 8);
  BenchOutputGroups(bench, "output_groups TP2", 4);
  BenchGate(bench);
  BenchExperts(bench, "expert_ffn", 2048, ExpertFormat::kMxfp4);
  BenchExperts(bench, "expert_ffn TP2", 1024, ExpertFormat::kMxfp4);
  BenchExperts(bench, "expert_ffn NVFP4", 2048, ExpertFormat::kNvfp4);
  BenchExperts(bench, "expert_ffn FP8", 2048, ExpertFormat::kFp8);
}

}  // namespace dsv4
