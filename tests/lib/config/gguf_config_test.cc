// SPDX-License-Identifier: Apache-2.0
#include "lib/config/gguf_config.h"

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_model.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::Bytes;
using test::GgufImage;
using test::GgufModelKeys;
using test::TempFolder;

absl::StatusOr<ModelConfig> Read(const GgufImage& image) {
  const TempFolder folder;
  const auto model = OpenGguf(folder.Write("m.gguf", image.Write()));
  REQUIRE_OK(model);
  return ReadGgufConfig(*model);
}

TEST_CASE("the keys give the configuration") {
  const auto config = Read(GgufModelKeys());
  REQUIRE_OK(config);
  CHECK(config->hidden_size == 256);
  // ds4's files name a block of a drafter that they lack.
  CHECK(config->num_hidden_layers == 3);
  CHECK(config->num_nextn_predict_layers == 0);
  CHECK(config->compress_ratios == std::vector<int32_t>{0, 4, 128, 0});
  CHECK(config->num_attention_heads == 2);
  CHECK(config->q_lora_rank == 256);
  CHECK(config->o_groups == 2);
  CHECK(config->o_lora_rank == 128);
  CHECK(config->index_n_heads == 2);
  CHECK(config->index_topk == 16);
  CHECK(config->n_routed_experts == 4);
  CHECK(config->num_experts_per_tok == 2);
  CHECK(config->moe_intermediate_size == 256);
  CHECK(config->num_hash_layers == 1);
  CHECK(config->routed_scaling_factor == 1.5);
  CHECK(config->swiglu_limit == 10);
  CHECK(config->hc_sinkhorn_iters == 20);
  // What config.json says, not what an f32 reads back as.
  CHECK(config->hc_eps == 1e-6);
  CHECK(config->rms_norm_eps == 1e-6);
  CHECK(config->max_position_embeddings == 4096);
  CHECK(config->rope_theta == 10000);
  CHECK(config->compress_rope_theta == 160000);
  CHECK(config->rope_scaling.factor == 16);
  CHECK(config->rope_scaling.original_max_position_embeddings == 1024);
  CHECK(config->rope_scaling.beta_fast == 32);
  CHECK(config->rope_scaling.beta_slow == 1);
  CHECK(config->vocab_size == test::kGgufVocab);
  CHECK(config->bos_token_id == 0);
  CHECK(config->eos_token_ids == std::vector<int32_t>{1});
}

TEST_CASE("what makers leave out is derived") {
  GgufImage keys = GgufModelKeys();
  keys.Remove("deepseek4.swiglu_clamp_shexp");
  keys.Key("deepseek4.vocab_size", uint32_t{test::kGgufVocab});
  keys.Set("deepseek4.swiglu_clamp_exp", GgufImage::kF32, Bytes(10.0f));
  keys.Remove("deepseek4.expert_feed_forward_length");
  keys.Array("deepseek4.expert_feed_forward_length", GgufImage::kU32,
             std::vector<uint32_t>{256, 256, 256});
  const auto config = Read(keys);
  REQUIRE_OK(config);
  CHECK(config->swiglu_limit == 10);
  CHECK(config->vocab_size == test::kGgufVocab);
  CHECK(config->moe_intermediate_size == 256);
}

TEST_CASE("a drafter's block in the model's file is no layer") {
  GgufImage keys = GgufModelKeys();
  keys.Set("deepseek4.block_count", GgufImage::kU32, Bytes(uint32_t{4}));
  keys.Tensor("blk.3.nextn.enorm.weight", 0, {1}, "abcd");
  const auto config = Read(keys);
  REQUIRE_OK(config);
  CHECK(config->num_hidden_layers == 3);
  CHECK(config->num_nextn_predict_layers == 1);
}

TEST_CASE("missing keys and contradictions are named") {
  struct Case {
    std::string key;
    uint32_t type;  // ~0: the key is removed
    std::string value;
    const char* message;
    absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  };
  constexpr uint32_t kRemoved = ~uint32_t{0};
  constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
  const std::string p = "deepseek4.";
  const auto u32 = [](uint32_t value) { return Bytes(value); };
  const Case cases[] = {
      {"general.architecture", kRemoved, "", "key general.architecture is missing"},
      {"general.architecture", GgufImage::kString, test::GgufString("deepseek41"),
       "the architecture is \"deepseek41\"; only deepseek4", kUnsupported},
      {"general.architecture", GgufImage::kString, test::GgufString("dflash"), "is a drafter",
       kUnsupported},
      {p + "hash_layer_count", kRemoved, "", "key deepseek4.hash_layer_count is missing"},
      {p + "hyper_connection.count", kRemoved, "",
       "key deepseek4.hyper_connection.count is missing"},
      {p + "hyper_connection.count", GgufImage::kU32, u32(2),
       "key deepseek4.hyper_connection.count is 2; only 4 is supported", kUnsupported},
      {p + "attention.indexer.top_k", kRemoved, "",
       "key deepseek4.attention.indexer.top_k is missing"},
      {p + "attention.key_length", GgufImage::kU32, u32(576),
       "key deepseek4.attention.key_length is 576; only 512", kUnsupported},
      {p + "attention.value_length", GgufImage::kU32, u32(128),
       "key deepseek4.attention.value_length is 128; only 512", kUnsupported},
      {p + "expert_count", GgufImage::kF32, Bytes(4.0f),
       "key deepseek4.expert_count is of type f32; expected an integer"},
      {p + "expert_count", GgufImage::kU32, u32(1), "more than n_routed_experts"},
      {p + "expert_gating_func", GgufImage::kU32, u32(2),
       "key deepseek4.expert_gating_func is 2; only 4", kUnsupported},
      {p + "expert_weights_norm", GgufImage::kBool, std::string(1, '\0'),
       "key deepseek4.expert_weights_norm is false; only true", kUnsupported},
      {p + "hyper_connection.epsilon", GgufImage::kF32, Bytes(uint32_t{0x7fc00000}),
       "key deepseek4.hyper_connection.epsilon is of type f32; expected a finite number"},
      {p + "rope.scaling.type", GgufImage::kString, test::GgufString("linear"),
       "key deepseek4.rope.scaling.type is \"linear\"; only \"yarn\"", kUnsupported},
      {p + "rope.scaling.factor", GgufImage::kF32, Bytes(0.5f),
       "key deepseek4.rope.scaling.factor is 0.5"},
      {p + "swiglu_clamp_shexp", GgufImage::kF32, Bytes(7.0f),
       "key deepseek4.swiglu_clamp_shexp is 7, another value than swiglu_clamp_exp, which is 10",
       kUnsupported},
      {p + "vocab_size", GgufImage::kU32, u32(500),
       "key deepseek4.vocab_size is 500, but tokenizer.ggml.tokens has 96 tokens"},
      {"tokenizer.ggml.tokens", kRemoved, "", "key tokenizer.ggml.tokens is missing"},
      {"tokenizer.ggml.eos_token_id", GgufImage::kU32, u32(96),
       "key tokenizer.ggml.eos_token_id is 96"},
      {p + "block_count", GgufImage::kU32, u32(5),
       "key deepseek4.attention.compress_ratios has 4 entries; at least 5"},
      {p + "attention.compress_ratios", GgufImage::kArray,
       u32(5) + Bytes(uint64_t{3}) + Bytes(int32_t{0}) + Bytes(int32_t{8}) + Bytes(int32_t{4}),
       "key deepseek4.attention.compress_ratios[1] is 8; expected 0, 4 or 128"},
  };
  for (const Case& c : cases) {
    INFO(c.key << ": " << c.message);
    GgufImage keys = GgufModelKeys();
    keys.Remove(c.key);
    if (c.type != kRemoved) keys.Key(c.key, c.type, c.value);
    REQUIRE_FAILS(Read(keys), c.code, c.message);
  }
}

}  // namespace
}  // namespace dsv4
