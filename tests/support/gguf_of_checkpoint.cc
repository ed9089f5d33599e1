// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_of_checkpoint.h"

#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/config/model_files.h"
#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

class ModelImage {
 public:
  explicit ModelImage(const std::string& folder)
      : config_(ReadModelFiles(folder)->config), checkpoint_(*Checkpoint::Open(folder)) {
    AddGgufKeys(config_, "deepseek4", config_.num_hidden_layers, config_.compress_ratios,
                config_.num_hash_layers, &image);
    for (const auto& [own, gguf] : GgufTopNames()) Add(own, gguf);
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
    const uint32_t type = entry->dtype == DType::kF32      ? Id(BlockType::kF32)
                          : entry->dtype == DType::kI64    ? kGgufI32
                          : entry->dtype == DType::kF8E4M3 ? Id(BlockType::kQ8_0)
                          : dims.size() > 1                ? Id(BlockType::kBf16)
                                                           : Id(BlockType::kF32);
    image.Tensor(to, type, dims, Derived(to, type));
  }

  void AddExperts(const std::string& from, const std::string& matrix, const std::string& to) {
    const TensorEntry* const first = checkpoint_->Find(absl::StrCat(from, "0.", matrix, ".weight"));
    REQUIRE(first != nullptr);
    const uint32_t type = Id(BlockType::kMxfp4);
    image.Tensor(
        to, type,
        {static_cast<uint64_t>(2 * first->shape[1]), static_cast<uint64_t>(first->shape[0]),
         static_cast<uint64_t>(config_.n_routed_experts)},
        Derived(to, type));
  }

  std::string Derived(const std::string& name, uint32_t type) const {
    std::optional<std::string> bytes = GgufTensorBytes(*checkpoint_, name, type);
    INFO(name);
    REQUIRE(bytes.has_value());
    return *std::move(bytes);
  }

  static uint32_t Id(BlockType type) { return InfoOf(type).gguf_id; }

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
