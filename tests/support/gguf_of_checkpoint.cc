// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_of_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/config/model_files.h"
#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

float OfE4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

float OfE2m1(int code) {
  constexpr float kSizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kSizes[code & 7] : kSizes[code & 7];
}

// The nearest half, of two equally near the even one. REQUIRES: a normal half, from 0.
uint16_t HalfOf(float value) {
  if (value == 0) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(value) - (112u << 23);
  return static_cast<uint16_t>((bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

std::string Q8_0Bytes(const std::vector<float>& values) {
  std::string bytes;
  for (size_t block = 0; block < values.size(); block += 32) {
    float most = 0;
    for (size_t i = 0; i < 32; ++i) most = std::max(most, std::fabs(values[block + i]));
    const float scale = most / 127, inverse = scale == 0 ? 0 : 1 / scale;
    bytes += Bytes(HalfOf(scale));
    // Halves away from zero.
    for (size_t i = 0; i < 32; ++i) {
      bytes += static_cast<char>(static_cast<int>(std::round(values[block + i] * inverse)));
    }
  }
  return bytes;
}

// Pairs (2j, 2j + 1) become (j, j + 16), behind the scale.
std::string Mxfp4Bytes(const TensorEntry& packed, const TensorEntry& scale) {
  std::string bytes;
  for (int64_t run = 0; run < scale.bytes; ++run) {
    const uint8_t* const pairs = packed.data + 16 * run;
    const auto code = [&](int i) { return pairs[i / 2] >> (i % 2 * 4) & 15; };
    bytes += static_cast<char>(scale.data[run]);
    for (int j = 0; j < 16; ++j) bytes += static_cast<char>(code(j) | code(j + 16) << 4);
  }
  return bytes;
}

class ModelImage {
 public:
  explicit ModelImage(const std::string& folder)
      : config_(ReadModelFiles(folder)->config), checkpoint_(*Checkpoint::Open(folder)) {
    AddGgufKeys(config_, "deepseek4", config_.num_hidden_layers, config_.compress_ratios,
                config_.num_hash_layers, &image);
    for (const auto& [own, gguf] : std::map<std::string, std::string>{
             {"embed.weight", "token_embd.weight"},
             {"head.weight", "output.weight"},
             {"norm.weight", "output_norm.weight"},
             {"hc_head_fn", "output_hc_fn.weight"},
             {"hc_head_base", "output_hc_base.weight"},
             {"hc_head_scale", "output_hc_scale.weight"},
         }) {
      Add(own, gguf);
    }
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const std::string from = absl::StrCat("layers.", layer, ".");
      const std::string to = absl::StrCat("blk.", layer, ".");
      for (const auto& [own, gguf] : GgufBlockNames()) {
        // The bias of hash layers is used by nobody.
        if (own == "ffn.gate.bias" && layer < config_.num_hash_layers) continue;
        if (checkpoint_->Find(from + own) != nullptr) Add(from + own, to + gguf);
      }
      for (const auto& [own, gguf] : GgufExpertNames()) {
        AddExperts(from + "ffn.experts.", own, to + gguf + ".weight");
      }
    }
  }

  GgufImage image;

 private:
  void Add(const std::string& from, const std::string& to) {
    const TensorEntry* const entry = checkpoint_->Find(from);
    INFO(from);
    REQUIRE(entry != nullptr);
    const std::vector<uint64_t> dims(entry->shape.rbegin(), entry->shape.rend());
    const std::string own(reinterpret_cast<const char*>(entry->data),
                          static_cast<size_t>(entry->bytes));
    const auto id = [](BlockType type) { return InfoOf(type).gguf_id; };
    if (entry->dtype == DType::kF32) {
      image.Tensor(to, id(BlockType::kF32), dims, own);
    } else if (entry->dtype == DType::kI64) {
      std::string ids;
      for (size_t i = 0; i < own.size(); i += sizeof(int64_t)) {
        ids += own.substr(i, sizeof(int32_t));
      }
      image.Tensor(to, kGgufI32, dims, ids);
    } else if (entry->dtype == DType::kF8E4M3) {
      image.Tensor(to, id(BlockType::kQ8_0), dims, Q8_0Bytes(ValuesOf(*checkpoint_, from)));
    } else if (dims.size() > 1) {
      image.Tensor(to, id(BlockType::kBf16), dims, own);
    } else {
      std::string widened;
      for (const float value : ValuesOf(*checkpoint_, from)) widened += Bytes(value);
      image.Tensor(to, id(BlockType::kF32), dims, widened);
    }
  }

  void AddExperts(const std::string& from, const std::string& matrix, const std::string& to) {
    std::string all;
    std::vector<uint64_t> dims;
    for (int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
      const std::string name = absl::StrCat(from, expert, ".", matrix);
      const TensorEntry* const packed = checkpoint_->Find(name + ".weight");
      REQUIRE(packed != nullptr);
      all += Mxfp4Bytes(*packed, *checkpoint_->Find(name + ".scale"));
      dims = {static_cast<uint64_t>(2 * packed->shape[1]), static_cast<uint64_t>(packed->shape[0]),
              static_cast<uint64_t>(config_.n_routed_experts)};
    }
    image.Tensor(to, InfoOf(BlockType::kMxfp4).gguf_id, dims, all);
  }

  const ModelConfig config_;
  const std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace

std::string GgufOfCheckpoint(const std::string& folder) { return ModelImage(folder).image.Write(); }

void AddGgufKeys(const ModelConfig& c, const std::string& architecture, int64_t layers,
                 const std::vector<int32_t>& ratios, int64_t hash_layers, GgufImage* image) {
  const auto key = [&](const char* name) { return absl::StrCat(architecture, ".", name); };
  const auto number = [&](const char* name, int64_t value) {
    image->Key(key(name), static_cast<uint32_t>(value));
  };
  const auto real = [&](const char* name, double value) {
    image->Key(key(name), static_cast<float>(value));
  };
  image->Key("general.architecture", architecture.c_str());
  number("block_count", layers);
  number("context_length", c.max_position_embeddings);
  number("embedding_length", c.hidden_size);
  number("attention.head_count", c.num_attention_heads);
  number("attention.head_count_kv", 1);
  number("attention.key_length", 512);
  number("attention.value_length", 512);
  real("attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  number("attention.q_lora_rank", c.q_lora_rank);
  number("attention.output_lora_rank", c.o_lora_rank);
  number("attention.output_group_count", c.o_groups);
  number("attention.sliding_window", 128);
  image->Array(key("attention.compress_ratios"), GgufImage::kI32, ratios);
  real("attention.compress_rope_freq_base", c.compress_rope_theta);
  number("attention.indexer.head_count", c.index_n_heads);
  number("attention.indexer.key_length", 128);
  number("attention.indexer.top_k", c.index_topk);
  number("rope.dimension_count", 64);
  real("rope.freq_base", c.rope_theta);
  image->Key(key("rope.scaling.type"), "yarn");
  real("rope.scaling.factor", c.rope_scaling.factor);
  number("rope.scaling.original_context_length", c.rope_scaling.original_max_position_embeddings);
  real("rope.scaling.yarn_beta_fast", c.rope_scaling.beta_fast);
  real("rope.scaling.yarn_beta_slow", c.rope_scaling.beta_slow);
  number("expert_count", c.n_routed_experts);
  number("expert_used_count", c.num_experts_per_tok);
  number("expert_shared_count", 1);
  number("expert_feed_forward_length", c.moe_intermediate_size);
  number("expert_gating_func", 4);
  real("expert_weights_scale", c.routed_scaling_factor);
  image->Key(key("expert_weights_norm"), true);
  const std::vector<float> clamp(static_cast<size_t>(layers), static_cast<float>(c.swiglu_limit));
  image->Array(key("swiglu_clamp_exp"), GgufImage::kF32, clamp);
  image->Array(key("swiglu_clamp_shexp"), GgufImage::kF32, clamp);
  number("hash_layer_count", hash_layers);
  number("hyper_connection.count", 4);
  number("hyper_connection.sinkhorn_iterations", c.hc_sinkhorn_iters);
  real("hyper_connection.epsilon", c.hc_eps);
  image->Array("tokenizer.ggml.tokens", GgufImage::kString,
               std::vector<std::string>(static_cast<size_t>(c.vocab_size), "token"));
  image->Key("tokenizer.ggml.bos_token_id", uint32_t{0});
  image->Key("tokenizer.ggml.eos_token_id", uint32_t{1});
}

const std::map<std::string, std::string>& GgufBlockNames() {
  static const auto* const names = new std::map<std::string, std::string>{
      {"attn_norm.weight", "attn_norm.weight"},
      {"ffn_norm.weight", "ffn_norm.weight"},
      {"attn.attn_sink", "attn_sinks.weight"},
      {"attn.wq_a.weight", "attn_q_a.weight"},
      {"attn.q_norm.weight", "attn_q_a_norm.weight"},
      {"attn.wq_b.weight", "attn_q_b.weight"},
      {"attn.wkv.weight", "attn_kv.weight"},
      {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
      {"attn.wo_a.weight", "attn_output_a.weight"},
      {"attn.wo_b.weight", "attn_output_b.weight"},
      {"attn.compressor.ape", "attn_compressor_ape.weight"},
      {"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
      {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
      {"attn.compressor.norm.weight", "attn_compressor_norm.weight"},
      {"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
      {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
      {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
      {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
      {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
      {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"},
      {"ffn.gate.weight", "ffn_gate_inp.weight"},
      {"ffn.gate.bias", "exp_probs_b.bias"},
      {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
      {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
      {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"},
      {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"},
      {"hc_attn_fn", "hc_attn_fn.weight"},
      {"hc_attn_base", "hc_attn_base.weight"},
      {"hc_attn_scale", "hc_attn_scale.weight"},
      {"hc_ffn_fn", "hc_ffn_fn.weight"},
      {"hc_ffn_base", "hc_ffn_base.weight"},
      {"hc_ffn_scale", "hc_ffn_scale.weight"},
  };
  return *names;
}

const std::map<std::string, std::string>& GgufExpertNames() {
  static const auto* const names = new std::map<std::string, std::string>{
      {"w1", "ffn_gate_exps"}, {"w3", "ffn_up_exps"}, {"w2", "ffn_down_exps"}};
  return *names;
}

std::vector<float> ValuesOf(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry& entry = *checkpoint.Find(name);
  std::vector<float> values;
  if (entry.dtype == DType::kBF16) {
    for (int64_t i = 0; i < entry.bytes; i += 2) {
      values.push_back(std::bit_cast<float>(
          static_cast<uint32_t>(entry.data[i] | entry.data[i + 1] << 8) << 16));
    }
    return values;
  }
  const TensorEntry& scale =
      *checkpoint.Find(absl::StrCat(absl::StripSuffix(name, "weight"), "scale"));
  const bool fp8 = entry.dtype == DType::kF8E4M3;
  const int64_t rows = entry.shape[0], k = entry.shape[1] * (fp8 ? 1 : 2);
  const int64_t scales = scale.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = fp8 ? row / 128 * scales + i / 128 : row * scales + i / 32;
      const float value = fp8 ? OfE4m3(entry.data[row * k + i])
                              : OfE2m1(entry.data[(row * k + i) / 2] >> (i % 2 * 4) & 15);
      values.push_back(std::ldexp(value, scale.data[at] - 127));
    }
  }
  return values;
}

std::string Bf16Bytes(const std::vector<float>& values) {
  std::string bytes;
  bool exact = true;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    exact = exact && (bits & 0xffff) == 0;
    bytes += Bytes(static_cast<uint16_t>(bits >> 16));
  }
  REQUIRE(exact);
  return bytes;
}

}  // namespace dsv4::test
