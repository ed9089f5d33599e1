// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/oracle_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/tensor/quant_format.h"
#include "tools/verify/oracle_words.h"

namespace dsv4 {
namespace {

// The root mean square that the generator takes for a weight's magnitude and for a uniform e2m1
// nibble.
constexpr double kMagnitudeRms = 0.8807;
constexpr double kE2M1Rms = 2.9262;
constexpr double kFfnGain = 1.5;

// Exponent of the power of two nearest to the factor that keeps a unit signal at `gain`.
int Log2Gain(double gain, int64_t fan_in, double rms) {
  return static_cast<int>(
      std::nearbyint(std::log2(gain / (std::sqrt(static_cast<double>(fan_in)) * rms))));
}

class Layout {
 public:
  explicit Layout(const OracleCase& oracle) : oracle_(oracle), c_(oracle.model) {
    const int64_t hidden = c_.hidden_size;
    Bf16("embed.weight", c_.vocab_size, hidden, std::sqrt(static_cast<double>(hidden)));
    Bf16("head.weight", c_.vocab_size, hidden, 2);
    Norm("norm.weight", hidden);
    HyperConnection("hc_head", kStreams, 1);
    for (int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      Block(absl::StrCat("layers.", layer), layer, c_.compress_ratios[layer], oracle.expert_format);
    }
    for (int64_t stage = 0; stage < oracle.stages; ++stage) Stage(stage);
  }

  std::vector<CaseTensor> tensors() && { return std::move(tensors_); }

 private:
  void Fp8(const std::string& name, int64_t n, int64_t k, double gain) {
    tensors_.push_back({name + ".weight", DType::kF8E4M3, {n, k}, Fill::kE4M3});
    const int exponent = Log2Gain(gain, k, kMagnitudeRms) - 1;
    tensors_.push_back({name + ".scale",
                        oracle_.f32_scales ? DType::kF32 : DType::kF8E8M0,
                        {CeilDiv(n, kFp8Block), CeilDiv(k, kFp8Block)},
                        oracle_.f32_scales ? Fill::kUneven : Fill::kE8M0,
                        exponent});
  }

  // One of an expert's three matrices, as `format` stores it.
  void Expert(const std::string& name, int64_t n, int64_t k, CaseFormat format) {
    const int exponent = Log2Gain(kFfnGain, k, kE2M1Rms) - 1;
    const std::string weight = name + ".weight", scale = name + ".scale";
    switch (format) {
      case CaseFormat::kMxfp4:
        tensors_.push_back({weight, DType::kI8, {n, k / 2}, Fill::kFp4Pair});
        tensors_.push_back({scale, DType::kF8E8M0, {n, k / kFp4Run}, Fill::kE8M0, exponent});
        return;
      case CaseFormat::kNvfp4: {
        // The largest exponent of the tensor, less 8, goes to the scale of the whole.
        const int largest = exponent + LargestStep(name, n * k / kFp4Run);
        tensors_.push_back({weight, DType::kU8, {n, k / 2}, Fill::kFp4Pair});
        tensors_.push_back({name + ".weight_scale",
                            DType::kF8E4M3,
                            {n, k / kNvfp4Run},
                            Fill::kE4M3Powers,
                            exponent - largest + 8,
                            scale});
        tensors_.push_back(
            {name + ".weight_scale_2", DType::kF32, {}, Fill::kPowerOfTwo, largest - 8});
        InputScale(name);
        return;
      }
      case CaseFormat::kNvfp4Real:
        tensors_.push_back({weight, DType::kU8, {n, k / 2}, Fill::kFp4Pair});
        tensors_.push_back(
            {name + ".weight_scale", DType::kF8E4M3, {n, k / kNvfp4Run}, Fill::kE4M3Uneven, 5});
        tensors_.push_back({name + ".weight_scale_2",
                            DType::kF32,
                            {},
                            Fill::kUneven,
                            Log2Gain(kFfnGain, k, kE2M1Rms) - 7,
                            Together(name).front() + ".weight_scale_2"});
        InputScale(name);
        return;
      case CaseFormat::kFp8:
        Fp8(name, n, k, kFfnGain);
        return;
      case CaseFormat::kFp8Cast:
        tensors_.push_back({weight, DType::kF8E4M3, {n, k}, Fill::kFp4InE4M3, 0, weight, scale, k});
        tensors_.push_back({scale,
                            DType::kF8E8M0,
                            {n / kFp8Block, k / kFp8Block},
                            Fill::kE8M0OfBlocks,
                            exponent - 6,
                            scale,
                            "",
                            k});
        return;
    }
  }

  void InputScale(const std::string& name) {
    tensors_.push_back({name + ".input_scale",
                        DType::kF32,
                        {},
                        Fill::kUneven,
                        -10,
                        Together(name).front() + ".input_scale"});
  }

  // The matrices that share the scales of a whole tensor: w1 and w3, or w2 alone.
  static std::vector<std::string> Together(const std::string& name) {
    if (name.back() == '2') return {name};
    const std::string expert = name.substr(0, name.size() - 1);
    return {expert + "1", expert + "3"};
  }

  // The largest that the first `count` words of the scales add to an exponent.
  int LargestStep(const std::string& name, int64_t count) const {
    int largest = 0;
    for (const std::string& matrix : Together(name)) {
      const OracleWords words(oracle_.seed, matrix + ".scale");
      for (int64_t i = 0; i < count && largest < 2; ++i) {
        largest = std::max(largest, static_cast<int>(words[i] % 3));
      }
    }
    return largest;
  }

  void Bf16(const std::string& name, int64_t n, int64_t k, double gain) {
    tensors_.push_back({name, DType::kBF16, {n, k}, Fill::kBf16, Log2Gain(gain, k, kMagnitudeRms)});
  }

  void Norm(const std::string& name, int64_t dim) {
    tensors_.push_back({name, DType::kBF16, {dim}, Fill::kNorm});
  }

  void F32(const std::string& name, std::vector<int64_t> shape, int exponent) {
    tensors_.push_back({name, DType::kF32, std::move(shape), Fill::kF32, exponent});
  }

  void HyperConnection(const std::string& prefix, int64_t mixes, int64_t scales) {
    const int64_t width = kStreams * c_.hidden_size;
    F32(prefix + "_fn", {mixes, width}, Log2Gain(1.7, width, 1));
    F32(prefix + "_base", {mixes}, 0);
    tensors_.push_back({prefix + "_scale", DType::kF32, {scales}, Fill::kHcScale});
  }

  void Compressor(const std::string& prefix, int64_t ratio, int64_t dim) {
    const int64_t width = ratio == 4 ? 2 * dim : dim;
    F32(prefix + ".ape", {ratio, width}, 0);
    Bf16(prefix + ".wkv.weight", width, c_.hidden_size, 1);
    Bf16(prefix + ".wgate.weight", width, c_.hidden_size, 2);
    Norm(prefix + ".norm.weight", dim);
  }

  void Attention(const std::string& a, int64_t ratio) {
    const int64_t hidden = c_.hidden_size, heads = c_.num_attention_heads;
    const int64_t groups = c_.o_groups, rank = c_.o_lora_rank;
    F32(a + ".attn_sink", {heads}, 0);
    Fp8(a + ".wq_a", c_.q_lora_rank, hidden, 1);
    Norm(a + ".q_norm.weight", c_.q_lora_rank);
    Fp8(a + ".wq_b", heads * kHeadDim, c_.q_lora_rank, 2);
    Fp8(a + ".wkv", kHeadDim, hidden, 1);
    Norm(a + ".kv_norm.weight", kHeadDim);
    Fp8(a + ".wo_a", groups * rank, heads * kHeadDim / groups, 2);
    Fp8(a + ".wo_b", hidden, groups * rank, 2);
    if (ratio != 0) Compressor(a + ".compressor", ratio, kHeadDim);
    if (ratio != 4) return;
    Fp8(a + ".indexer.wq_b", c_.index_n_heads * kIndexHeadDim, c_.q_lora_rank, 2);
    Bf16(a + ".indexer.weights_proj.weight", c_.index_n_heads, hidden, 1);
    Compressor(a + ".indexer.compressor", 4, kIndexHeadDim);
  }

  void Moe(const std::string& f, bool hash_routed, CaseFormat format) {
    const int64_t hidden = c_.hidden_size, inter = c_.moe_intermediate_size;
    Bf16(f + ".gate.weight", c_.n_routed_experts, hidden, 2);
    if (hash_routed) {
      tensors_.push_back({f + ".gate.tid2eid",
                          DType::kI64,
                          {c_.vocab_size, c_.num_experts_per_tok},
                          Fill::kExperts});
    } else {
      F32(f + ".gate.bias", {c_.n_routed_experts}, -2);
    }
    for (int64_t e = 0; e < c_.n_routed_experts; ++e) {
      const std::string expert = absl::StrCat(f, ".experts.", e);
      Expert(expert + ".w1", inter, hidden, format);
      Expert(expert + ".w3", inter, hidden, format);
      Expert(expert + ".w2", hidden, inter, format);
    }
    const std::string shared = f + ".shared_experts";
    Fp8(shared + ".w1", inter, hidden, kFfnGain);
    Fp8(shared + ".w3", inter, hidden, kFfnGain);
    Fp8(shared + ".w2", hidden, inter, kFfnGain);
  }

  void Block(const std::string& p, int64_t layer, int64_t ratio, CaseFormat format) {
    constexpr int64_t kMixes = (2 + kStreams) * kStreams;
    Norm(p + ".attn_norm.weight", c_.hidden_size);
    Norm(p + ".ffn_norm.weight", c_.hidden_size);
    HyperConnection(p + ".hc_attn", kMixes, 3);
    HyperConnection(p + ".hc_ffn", kMixes, 3);
    Attention(p + ".attn", ratio);
    Moe(p + ".ffn", layer < c_.num_hash_layers, format);
  }

  // An MTP block, or a stage of a DSpark drafter.
  void Stage(int64_t stage) {
    const std::string p = absl::StrCat("mtp.", stage);
    const int64_t hidden = c_.hidden_size;
    const bool dspark = oracle_.dspark.block_size > 0;
    Block(p, c_.num_hidden_layers + stage, 0, oracle_.drafter_format);
    if (!dspark) {
      Fp8(p + ".e_proj", hidden, hidden, 1);
      Fp8(p + ".h_proj", hidden, hidden, 1);
      Norm(p + ".enorm.weight", hidden);
      Norm(p + ".hnorm.weight", hidden);
    } else if (stage == 0) {
      Fp8(p + ".main_proj", hidden, hidden * oracle_.dspark.taps, 1);
      Norm(p + ".main_norm.weight", hidden);
    }
    if (stage != oracle_.stages - 1) return;
    Norm(p + ".norm.weight", hidden);
    HyperConnection(p + ".hc_head", kStreams, 1);
    if (!dspark) return;
    const int64_t rank = oracle_.dspark.markov_rank;
    Bf16(p + ".markov_head.markov_w1.weight", c_.vocab_size, rank,
         16 * std::sqrt(static_cast<double>(rank)));
    Bf16(p + ".markov_head.markov_w2.weight", c_.vocab_size, rank, 2. / 16);
    Bf16(p + ".confidence_head.proj.weight", 1, hidden + rank, 1. / 32);
  }

  const OracleCase& oracle_;
  const ModelConfig& c_;
  std::vector<CaseTensor> tensors_;
};

}  // namespace

int64_t CaseTensor::Bytes() const {
  int64_t bytes = DTypeBytes(dtype);
  for (const int64_t size : shape) bytes *= size;
  return bytes;
}

std::vector<CaseTensor> TensorsOfCase(const OracleCase& oracle) { return Layout(oracle).tensors(); }

}  // namespace dsv4
