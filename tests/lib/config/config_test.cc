// SPDX-License-Identifier: Apache-2.0
#include "lib/config/config.h"

#include "lib/config/model_files.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::BundledFile;
using test::EditedJson;
using Code = absl::StatusCode;

absl::StatusOr<ModelConfig> Parse(const std::string& json) {
  return ParseModelConfig(json, "config.json");
}

// The bundled config.json with one value replaced, or removed where it is empty.
std::string With(const std::string& key, const std::string& value) {
  return EditedJson(BundledFile("config.json"), key, value);
}

TEST_CASE("the bundled config.json is read") {
  const auto c = Parse(BundledFile("config.json"));
  REQUIRE_OK(c);
  CHECK(c->hidden_size == 256);
  CHECK(c->num_hidden_layers == 6);
  CHECK(c->num_attention_heads == 4);
  CHECK(c->q_lora_rank == 128);
  CHECK(c->o_groups == 2);
  CHECK(c->o_lora_rank == 128);
  CHECK(c->compress_ratios == std::vector<int32_t>{0, 0, 4, 128, 4, 128, 0});
  CHECK(c->index_n_heads == 8);
  CHECK(c->index_topk == 64);
  CHECK(c->n_routed_experts == 16);
  CHECK(c->num_experts_per_tok == 4);
  CHECK(c->moe_intermediate_size == 128);
  CHECK(c->num_hash_layers == 3);
  CHECK(c->routed_scaling_factor == 1.5);
  CHECK(c->swiglu_limit == 10.0);
  CHECK(c->hc_sinkhorn_iters == 20);
  CHECK(c->hc_eps == 1e-6);
  CHECK(c->rms_norm_eps == 1e-6);
  CHECK(c->max_position_embeddings == 16384);
  CHECK(c->rope_theta == 10000);
  CHECK(c->compress_rope_theta == 160000);
  CHECK(c->rope_scaling.factor == 16);
  CHECK(c->rope_scaling.original_max_position_embeddings == 1024);
  CHECK(c->rope_scaling.beta_fast == 32);
  CHECK(c->rope_scaling.beta_slow == 1);
  CHECK(c->num_nextn_predict_layers == 1);
  CHECK(c->vocab_size == 2048);
  CHECK(c->bos_token_id == 0);
  CHECK(c->eos_token_ids == std::vector<int32_t>{1});
}

TEST_CASE("the published sizes of Flash and Pro are accepted") {
  // model.md section 1.
  struct Size {
    const char *key, *flash, *pro;
  };
  const Size sizes[] = {{"hidden_size", "4096", "7168"},
                        {"num_attention_heads", "64", "128"},
                        {"q_lora_rank", "1024", "1536"},
                        {"o_groups", "8", "16"},
                        {"o_lora_rank", "1024", "1024"},
                        {"index_n_heads", "64", "64"},
                        {"index_topk", "512", "1024"},
                        {"n_routed_experts", "256", "384"},
                        {"num_experts_per_tok", "6", "6"},
                        {"moe_intermediate_size", "2048", "3072"},
                        {"max_position_embeddings", "1048576", "1048576"},
                        {"original_max_position_embeddings", "65536", "65536"},
                        {"vocab_size", "129280", "129280"}};
  std::string flash = BundledFile("config.json"), pro = flash;
  for (const Size& size : sizes) {
    flash = EditedJson(flash, size.key, size.flash);
    pro = EditedJson(pro, size.key, size.pro);
  }
  REQUIRE_OK(Parse(flash));
  REQUIRE_OK(Parse(pro));
}

TEST_CASE("what need not be there may be absent") {
  const auto two_ends = Parse(With("eos_token_id", "[1, 16]"));
  REQUIRE_OK(two_ends);
  CHECK(two_ends->eos_token_ids == std::vector<int32_t>{1, 16});
  REQUIRE_OK(Parse(With("expert_dtype", "")));
  REQUIRE_OK(Parse(With("expert_dtype", "null")));
  REQUIRE_OK(Parse(With("model_type", "")));
  REQUIRE_OK(Parse(With("torch_dtype", "[{\"unknown\": [1e999]}]")));
  const std::string later = EditedJson(
      BundledFile("config.json"), "rope_scaling",
      R"({"rope_type":"yarn","factor":2.5,"original_max_position_embeddings":7,"beta_fast":3,"beta_slow":3})");
  const auto renamed = Parse(later);
  REQUIRE_OK(renamed);
  CHECK(renamed->rope_scaling.factor == 2.5);
  CHECK(renamed->rope_scaling.original_max_position_embeddings == 7);

  // The indexer's keys are needed, and looked at, only where a layer has ratio 4.
  std::string no_csa = With("compress_ratios", "[0, 0, 128, 128, 0, 128, 0]");
  for (const char* key : {"index_n_heads", "index_head_dim", "index_topk"}) {
    no_csa = EditedJson(no_csa, key, "");
  }
  const auto config = Parse(no_csa);
  REQUIRE_OK(config);
  CHECK(config->index_n_heads == 0);
  CHECK(config->index_topk == 0);

  const auto no_mtp = Parse(EditedJson(With("num_nextn_predict_layers", "0"), "compress_ratios",
                                       "[0, 0, 4, 128, 4, 128]"));
  REQUIRE_OK(no_mtp);
  CHECK(no_mtp->compress_ratios.size() == 6);

  // Past the layers' entries are those of drafters, as many as the file likes.
  for (const char* ratios : {"[0,0,4,128,4,128]", "[0,0,4,128,4,128,0,0,0]"}) {
    const auto any_length = Parse(With("compress_ratios", ratios));
    REQUIRE_OK(any_length);
    CHECK(any_length->num_hidden_layers == 6);
  }
  REQUIRE_OK(Parse(With("expert_dtype", "\"fp8\"")));
}

// config.json as transformers 5 writes it (DeepseekV4Config of configuration_deepseek_v4.py).
std::string Transformers5() {
  std::string json = BundledFile("config.json");
  for (const char* key : {"rope_scaling", "compress_ratios", "num_hash_layers", "qk_rope_head_dim",
                          "compress_rope_theta"}) {
    json = EditedJson(json, key, "");
  }
  return EditedJson(json, "hc_mult", R"(4, "partial_rotary_factor": 0.125,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "layer_types": ["sliding_attention", "sliding_attention", "compressed_sparse_attention",
      "heavily_compressed_attention", "compressed_sparse_attention",
      "heavily_compressed_attention"],
    "mlp_layer_types": ["hash_moe", "hash_moe", "hash_moe", "moe", "moe", "moe"],
    "rope_parameters": {
      "main": {"rope_type": "default", "main_theta": 1, "partial_rotary_factor": 0.125},
      "compress": {"attention_factor": 1.0, "beta_fast": 32, "beta_slow": 1, "factor": 16,
        "original_max_position_embeddings": 1024, "partial_rotary_factor": 0.125,
        "rope_theta": 160000.0, "rope_type": "yarn", "type": "yarn"}})");
}

TEST_CASE("a config.json that transformers 5 wrote is read") {
  const auto old = Parse(BundledFile("config.json"));
  REQUIRE_OK(old);
  for (const char* main_theta : {"\"unused\"", "\"rope_theta\""}) {
    // The base of the layers without compression stands at the top, or in its rotation, or in both.
    std::string json = Transformers5();
    json.replace(json.find("\"main_theta\": 1"), 15, std::string(main_theta) + ": 10000");
    if (std::string(main_theta) == "\"rope_theta\"") {
      REQUIRE_OK(Parse(json));
      // The key at the top comes later in the file than the one that is looked for here.
      const size_t top = json.find("\"rope_theta\": 10000,");
      json.erase(top, 20);
    }
    const auto c = Parse(json);
    REQUIRE_OK(c);
    CHECK(c->rope_theta == 10000);
    CHECK(c->compress_rope_theta == 160000);
    CHECK(c->rope_scaling.factor == 16);
    CHECK(c->rope_scaling.original_max_position_embeddings == 1024);
    CHECK(c->rope_scaling.beta_fast == 32);
    CHECK(c->rope_scaling.beta_slow == 1);
    CHECK(c->compress_ratios == std::vector<int32_t>{0, 0, 4, 128, 4, 128});
    CHECK(c->num_hash_layers == 3);
  }
  // One object, from tools that do not know the family's two rotations.
  const std::string flat =
      EditedJson(EditedJson(BundledFile("config.json"), "rope_theta", ""), "rope_scaling",
                 R"(null, "rope_parameters": {"rope_theta": 20000, "rope_type": "yarn", "factor": 4,
         "original_max_position_embeddings": 512, "beta_fast": 8, "beta_slow": 2})");
  const auto c = Parse(flat);
  REQUIRE_OK(c);
  CHECK(c->rope_theta == 20000);
  CHECK(c->compress_rope_theta == 160000);
  CHECK(c->rope_scaling.factor == 4);
}

TEST_CASE("keys of two generations that contradict each other are refused by name") {
  const auto both = [](const std::string& added) { return With("hc_mult", "4, " + added); };
  const std::string main = R"("rope_parameters": {"main": {"rope_theta": 10000}, "compress": )";
  const std::string yarn = R"({"rope_type": "yarn", "rope_theta": 160000, "factor": 16,
      "original_max_position_embeddings": 1024, "beta_fast": 32, "beta_slow": 1)";
  REQUIRE_OK(Parse(both(main + yarn + "}}")));
  REQUIRE_FAILS(Parse(both(R"("rope_parameters": 7)")), Code::kInvalidArgument,
                "config.json: rope_parameters is 7; expected an object");
  REQUIRE_FAILS(Parse(both(R"("rope_parameters": {"main": {"rope_theta": 10000}})")),
                Code::kInvalidArgument, "config.json: rope_parameters.compress is missing");
  REQUIRE_FAILS(Parse(EditedJson(both(main + yarn + "}}"), "compress_rope_theta", "5")),
                Code::kInvalidArgument,
                "rope_parameters.compress.rope_theta is 160000, but compress_rope_theta is 5");
  REQUIRE_FAILS(
      Parse(both(R"("rope_parameters": {"main": {"rope_theta": 5}, "compress": )" + yarn + "}}")),
      Code::kInvalidArgument, "rope_parameters.main.rope_theta is 5, but rope_theta is 10000");
  std::string other = both(main + yarn + "}}");
  other.replace(other.find("\"factor\": 16"), 12, "\"factor\": 17");
  REQUIRE_FAILS(Parse(other), Code::kInvalidArgument,
                "config.json: rope_scaling and rope_parameters differ");
  REQUIRE_FAILS(
      Parse(both(R"("rope_parameters": {"main": {"rope_type": "yarn"}, "compress": {}})")),
      Code::kUnimplemented, "rope_parameters.main.rope_type is \"yarn\"; only \"default\"");
  REQUIRE_FAILS(Parse(both(R"("layer_types": ["sliding_attention", "compressed_sparse_attention",
        "compressed_sparse_attention", "heavily_compressed_attention",
        "compressed_sparse_attention", "heavily_compressed_attention"])")),
                Code::kInvalidArgument,
                "layer_types[1] is for the ratio 4, but compress_ratios[1] is 0");
  REQUIRE_FAILS(Parse(both(R"("layer_types": ["full_attention"])")), Code::kInvalidArgument,
                "layer_types is an array; expected a list of 6 names (num_hidden_layers)");
  REQUIRE_FAILS(Parse(both(R"("mlp_layer_types": ["moe","moe","moe","moe","moe","dense"])")),
                Code::kUnimplemented, "mlp_layer_types[5] is \"dense\"; only hash_moe, moe are");
  REQUIRE_FAILS(Parse(both(R"("mlp_layer_types": ["hash_moe","moe","moe","moe","moe","moe"])")),
                Code::kInvalidArgument,
                "mlp_layer_types has 1 layers of hash_moe, but num_hash_layers is 3");
  REQUIRE_FAILS(Parse(both(R"("mlp_layer_types": ["moe","hash_moe","moe","moe","moe","moe"])")),
                Code::kUnimplemented, "mlp_layer_types has hash_moe behind moe");
}

TEST_CASE("keys of other models are ignored only where they say what holds for the family") {
  struct Case {
    const char *key, *holds, *contradicts, *message;
  };
  const Case cases[] = {
      {"tie_word_embeddings", "false", "true", "tie_word_embeddings is true; only false"},
      {"attention_bias", "false", "true", "attention_bias is true; only false"},
      {"topk_method", "\"noaux_tc\"", "\"greedy\"", "topk_method is \"greedy\"; only \"noaux_tc\""},
      {"hc_mult", "4, \"mlp_bias\": false", "4, \"mlp_bias\": true",
       "mlp_bias is true; only false"},
      {"hc_mult", "4, \"n_group\": 1", "4, \"n_group\": 8", "n_group is 8; only 1"},
      {"hc_mult", "4, \"topk_group\": null", "4, \"topk_group\": 4", "topk_group is 4; only 1"},
      {"hc_mult", "4, \"first_k_dense_replace\": 0", "4, \"first_k_dense_replace\": 3",
       "first_k_dense_replace is 3; only 0"},
      {"hc_mult", "4, \"moe_layer_freq\": 1", "4, \"moe_layer_freq\": 2",
       "moe_layer_freq is 2; only 1"},
      {"hc_mult", "4, \"rope_interleave\": true", "4, \"rope_interleave\": false",
       "rope_interleave is false; only true"},
      {"hc_mult", "4, \"partial_rotary_factor\": 0.125", "4, \"partial_rotary_factor\": 0.5",
       "partial_rotary_factor is 0.5; only 0.125"},
      {"factor", "16, \"attention_factor\": 1", "16, \"attention_factor\": 1.277",
       "rope_scaling.attention_factor is 1.277; only 1"},
      {"factor", "16, \"mscale\": 0", "16, \"mscale\": 0.707",
       "rope_scaling.mscale is 0.707; only 0"},
      {"factor", "16, \"mscale_all_dim\": 0.0", "16, \"mscale_all_dim\": 1.0",
       "rope_scaling.mscale_all_dim is 1.0; only 0"},
      {"factor", "16, \"truncate\": true", "16, \"truncate\": false",
       "rope_scaling.truncate is false; only true"},
  };
  for (const Case& c : cases) {
    INFO(c.key << " " << c.contradicts);
    REQUIRE_OK(Parse(With(c.key, c.holds)));
    REQUIRE_FAILS(Parse(With(c.key, c.contradicts)), Code::kUnimplemented,
                  std::string("config.json: ") + c.message);
  }
  REQUIRE_FAILS(Parse(With("tie_word_embeddings", "1")), Code::kInvalidArgument,
                "tie_word_embeddings is 1; expected false");
  REQUIRE_FAILS(Parse(With("factor", "16, \"attention_factor\": \"1\"")), Code::kInvalidArgument,
                "rope_scaling.attention_factor is \"1\"; expected 1");
}

TEST_CASE("an empty path is no model") {
  REQUIRE_FAILS(ReadModelFiles("").status(), Code::kInvalidArgument,
                "the path of the model is empty");
}

TEST_CASE("a byte order mark in front of a config.json is passed over") {
  REQUIRE_OK(Parse("\xEF\xBB\xBF" + BundledFile("config.json")));
}

TEST_CASE("the largest accepted values are accepted") {
  const std::pair<const char*, const char*> limits[] = {{"max_position_embeddings", "2147483647"},
                                                        {"hidden_size", "65536"},
                                                        {"moe_intermediate_size", "65536"},
                                                        {"q_lora_rank", "65536"},
                                                        {"o_lora_rank", "65536"},
                                                        {"n_routed_experts", "4096"},
                                                        {"vocab_size", "16777216"},
                                                        {"num_experts_per_tok", "16"},
                                                        {"num_hash_layers", "6"},
                                                        {"swiglu_limit", "0"},
                                                        {"num_hash_layers", "0"},
                                                        {"eos_token_id", "2047"}};
  for (const auto& [key, value] : limits) {
    INFO(key << " " << value);
    REQUIRE_OK(Parse(With(key, value)));
  }
}

TEST_CASE("every key that is needed is named when it is missing or null") {
  for (const char* key : {"hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "qk_rope_head_dim",
                          "q_lora_rank",
                          "o_groups",
                          "o_lora_rank",
                          "compress_ratios",
                          "sliding_window",
                          "index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "n_shared_experts",
                          "moe_intermediate_size",
                          "num_hash_layers",
                          "scoring_func",
                          "routed_scaling_factor",
                          "norm_topk_prob",
                          "hidden_act",
                          "swiglu_limit",
                          "hc_mult",
                          "hc_sinkhorn_iters",
                          "hc_eps",
                          "rms_norm_eps",
                          "max_position_embeddings",
                          "rope_theta",
                          "compress_rope_theta",
                          "rope_scaling",
                          "num_nextn_predict_layers",
                          "vocab_size",
                          "bos_token_id",
                          "eos_token_id",
                          "quantization_config"}) {
    const std::string message = std::string("config.json: ") + key + " is missing";
    REQUIRE_FAILS(Parse(With(key, "")), Code::kInvalidArgument, message);
    REQUIRE_FAILS(Parse(With(key, "null")), Code::kInvalidArgument, message);
  }
  for (const char* key :
       {"type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}) {
    REQUIRE_FAILS(Parse(With(key, "")), Code::kInvalidArgument,
                  std::string("config.json: rope_scaling.") + key + " is missing");
  }
  for (const char* key :
       {"quant_method", "fmt", "scale_fmt", "activation_scheme", "weight_block_size"}) {
    REQUIRE_FAILS(Parse(With(key, "")), Code::kInvalidArgument,
                  std::string("config.json: quantization_config.") + key + " is missing");
  }
}

TEST_CASE("a value that no model can have is refused by key and value") {
  struct Case {
    const char *key, *value, *message;
  };
  const Case cases[] = {
      {"hidden_size", "\"abc\"", "hidden_size is \"abc\"; expected an integer from 128 to 65536"},
      {"hidden_size", "\"256\"", "hidden_size is \"256\"; expected an integer"},
      {"hidden_size", "256.5", "hidden_size is 256.5; expected an integer"},
      {"hidden_size", "true", "hidden_size is true; expected an integer"},
      {"hidden_size", "[256]", "hidden_size is an array; expected an integer"},
      {"hidden_size", "{}", "hidden_size is an object; expected an integer"},
      {"hidden_size", "0", "hidden_size is 0; expected an integer from 128 to 65536"},
      {"hidden_size", "-256", "hidden_size is -256; expected an integer"},
      {"hidden_size", "1000000000000000000", "hidden_size is 1000000000000000000; expected"},
      {"hidden_size", "1e18", "hidden_size is 1e18; expected an integer"},
      {"hidden_size", "123456789012345678901234567890",
       "hidden_size is 123456789012345678901234567890; expected an integer"},
      {"hidden_size", "1e999", "hidden_size is 1e999; expected an integer"},
      {"hidden_size", "320", "hidden_size is 320; expected a multiple of 128"},
      {"q_lora_rank", "100", "q_lora_rank is 100; expected an integer from 128"},
      {"q_lora_rank", "129", "q_lora_rank is 129; expected a multiple of 128"},
      {"o_lora_rank", "64", "o_lora_rank is 64; expected"},
      {"o_lora_rank", "192", "o_lora_rank is 192; expected a multiple of 128"},
      {"moe_intermediate_size", "160", "moe_intermediate_size is 160; expected a multiple of 128"},
      {"num_hidden_layers", "0", "num_hidden_layers is 0; expected"},
      {"num_hidden_layers", "8",
       "compress_ratios has 7 entries; at least 8 expected (num_hidden_layers)"},
      {"num_hidden_layers", "1000000000000", "num_hidden_layers is 1000000000000; expected"},
      {"num_attention_heads", "0", "num_attention_heads is 0; expected"},
      {"num_attention_heads", "5", "o_groups is 2, which does not divide num_attention_heads, 5"},
      {"num_attention_heads", "1000000", "num_attention_heads is 1000000; expected"},
      {"o_groups", "0", "o_groups is 0; expected"},
      {"o_groups", "3", "o_groups is 3, which does not divide num_attention_heads, 4"},
      {"o_groups", "8", "o_groups is 8, which does not divide num_attention_heads, 4"},
      {"compress_ratios", "4", "compress_ratios is 4; expected an array"},
      {"compress_ratios", "[]", "compress_ratios has 0 entries; at least 6 expected"},
      {"compress_ratios", "[0,0,4,128,4]", "compress_ratios has 5 entries; at least 6 expected"},
      {"compress_ratios", "[0,0,4,64,4,128,0]", "compress_ratios[3] is 64; expected 0, 4 or 128"},
      {"compress_ratios", "[-4,0,4,0,4,128,0]", "compress_ratios[0] is -4; expected 0, 4 or 128"},
      {"compress_ratios", "[0,\"4\",4,0,4,0,0]", "compress_ratios[1] is \"4\"; expected 0, 4"},
      {"compress_ratios", "[0,null,4,0,4,0,0]", "compress_ratios[1] is null; expected 0, 4"},
      {"index_n_heads", "0", "index_n_heads is 0; expected"},
      {"index_n_heads", "99999", "index_n_heads is 99999; expected"},
      {"index_topk", "0", "index_topk is 0; expected an integer from 1 to 65536"},
      {"index_topk", "1000000000000", "index_topk is 1000000000000; expected"},
      {"n_routed_experts", "0", "n_routed_experts is 0; expected"},
      {"n_routed_experts", "1000000000", "n_routed_experts is 1000000000; expected"},
      {"n_routed_experts", "3", "num_experts_per_tok is 4, more than n_routed_experts, which is 3"},
      {"num_experts_per_tok", "0", "num_experts_per_tok is 0; expected"},
      {"num_experts_per_tok", "17",
       "num_experts_per_tok is 17, more than n_routed_experts, which is 16"},
      {"num_hash_layers", "-1", "num_hash_layers is -1; expected"},
      {"num_hash_layers", "7", "num_hash_layers is 7, more than num_hidden_layers, which is 6"},
      {"norm_topk_prob", "1", "norm_topk_prob is 1; expected true"},
      {"head_dim", "\"512\"", "head_dim is \"512\"; expected 512"},
      {"scoring_func", "3", "scoring_func is 3; expected \"sqrtsoftplus\""},
      {"routed_scaling_factor", "0", "routed_scaling_factor is 0; expected a number from"},
      {"routed_scaling_factor", "1e999", "routed_scaling_factor is 1e999; expected a number"},
      {"routed_scaling_factor", "\"NaN\"", "routed_scaling_factor is \"NaN\"; expected a number"},
      {"swiglu_limit", "-1", "swiglu_limit is -1; expected a number from 0 to"},
      {"hc_sinkhorn_iters", "0", "hc_sinkhorn_iters is 0; expected"},
      {"hc_sinkhorn_iters", "1000000000", "hc_sinkhorn_iters is 1000000000; expected"},
      {"hc_eps", "0", "hc_eps is 0; expected a number"},
      {"hc_eps", "-1e-6", "hc_eps is -1e-6; expected a number"},
      {"rms_norm_eps", "0", "rms_norm_eps is 0; expected a number"},
      {"rms_norm_eps", "2", "rms_norm_eps is 2; expected a number"},
      {"max_position_embeddings", "0", "max_position_embeddings is 0; expected"},
      {"max_position_embeddings", "2147483648", "max_position_embeddings is 2147483648; expected"},
      {"rope_theta", "0", "rope_theta is 0; expected a number"},
      {"rope_theta", "1", "rope_theta is 1; expected a number from 2 to"},
      {"compress_rope_theta", "-160000", "compress_rope_theta is -160000; expected a number"},
      {"rope_scaling", "\"yarn\"", "rope_scaling is \"yarn\"; expected an object"},
      {"type", "7", "rope_scaling.type is 7; expected \"yarn\""},
      {"factor", "0.5", "rope_scaling.factor is 0.5; expected a number from 1 to"},
      {"factor", "\"x\"", "rope_scaling.factor is \"x\"; expected a number"},
      {"original_max_position_embeddings", "0",
       "rope_scaling.original_max_position_embeddings is 0; expected"},
      {"beta_slow", "0", "rope_scaling.beta_slow is 0; expected"},
      {"beta_slow", "33", "rope_scaling.beta_slow is 33, more than beta_fast, which is 32"},
      {"vocab_size", "0", "vocab_size is 0; expected"},
      {"vocab_size", "1000000000000000000", "vocab_size is 1000000000000000000; expected"},
      {"bos_token_id", "2048", "bos_token_id is 2048; expected an integer from 0 to 2047"},
      {"bos_token_id", "-1", "bos_token_id is -1; expected"},
      {"eos_token_id", "2048", "eos_token_id is 2048; expected an integer from 0 to 2047"},
      {"eos_token_id", "[1, 2048]", "eos_token_id is 2048; expected an integer from 0 to 2047"},
      {"eos_token_id", "[]", "eos_token_id is an empty list; expected at least one token id"},
      {"quantization_config", "[]", "quantization_config is an array; expected an object"},
      {"scale_fmt", "8", "quantization_config.scale_fmt is 8; expected \"ue8m0\""},
      {"expert_dtype", "4", "expert_dtype is 4; expected \"fp4\""},
      {"num_nextn_predict_layers", "-1", "num_nextn_predict_layers is -1; expected"},
  };
  for (const Case& c : cases) {
    REQUIRE_FAILS(Parse(With(c.key, c.value)), Code::kInvalidArgument,
                  std::string("config.json: ") + c.message);
  }
}

TEST_CASE("a value of a model that this library does not run is Unsupported") {
  struct Case {
    const char *key, *value, *message;
  };
  const Case cases[] = {
      {"model_type", "\"llama\"", "model_type is \"llama\"; only \"deepseek_v4\" is supported"},
      {"head_dim", "128", "head_dim is 128; only 512 is supported"},
      {"qk_rope_head_dim", "32", "qk_rope_head_dim is 32; only 64 is supported"},
      {"index_head_dim", "64", "index_head_dim is 64; only 128 is supported"},
      {"sliding_window", "4096", "sliding_window is 4096; only 128 is supported"},
      {"hc_mult", "2", "hc_mult is 2; only 4 is supported"},
      {"num_key_value_heads", "4", "num_key_value_heads is 4; only 1 is supported"},
      {"n_shared_experts", "2", "n_shared_experts is 2; only 1 is supported"},
      {"norm_topk_prob", "false", "norm_topk_prob is false; only true is supported"},
      {"scoring_func", "\"sigmoid\"", "scoring_func is \"sigmoid\"; only \"sqrtsoftplus\""},
      {"hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; only \"silu\" is supported"},
      {"expert_dtype", "\"int4\"",
       "expert_dtype is \"int4\"; only \"fp4\" or \"fp8\" is supported"},
      {"type", "\"linear\"", "rope_scaling.type is \"linear\"; only \"yarn\" is supported"},
      {"quant_method", "\"modelopt\"", "quantization_config.quant_method is \"modelopt\"; only"},
      {"fmt", "\"e5m2\"", "quantization_config.fmt is \"e5m2\"; only \"e4m3\" is supported"},
      {"scale_fmt", "\"float\"", "quantization_config.scale_fmt is \"float\"; only \"ue8m0\""},
      {"activation_scheme", "\"static\"",
       "quantization_config.activation_scheme is \"static\"; only \"dynamic\" is supported"},
      {"weight_block_size", "[1, 128]", "quantization_config.weight_block_size is not [128, 128]"},
      {"weight_block_size", "128", "quantization_config.weight_block_size is not [128, 128]"},
      {"compress_ratios", "[0,0,4,128,4,128,4]",
       "compress_ratios[6] is 4; only 0 is supported past the layers"},
  };
  for (const Case& c : cases) {
    REQUIRE_FAILS(Parse(With(c.key, c.value)), Code::kUnimplemented,
                  std::string("config.json: ") + c.message);
  }
}

TEST_CASE("a config.json that is not one JSON object is Corrupt") {
  for (const std::string& json :
       {std::string(), std::string("not JSON"), std::string("{\"hidden_size\": 256"),
        std::string("{'hidden_size': 256}"), BundledFile("config.json") + "{}",
        std::string("{\"a\":") + std::string(100000, '[') + std::string(100000, ']') + "}",
        std::string("{\"a\":\"\xff\"}"), std::string((1 << 20) + 1, ' ')}) {
    INFO(json.substr(0, 50));
    REQUIRE_FAILS(Parse(json), Code::kDataLoss, "config.json: ");
  }
  REQUIRE_FAILS(Parse("[1]"), Code::kDataLoss,
                "config.json: the document is an array; expected an");
}

TEST_CASE("the bundled generation_config.json asks for greedy decoding") {
  const auto g = ParseGenerationConfig(BundledFile("generation_config.json"), "g.json");
  REQUIRE_OK(g);
  CHECK_FALSE(g->do_sample);
  CHECK(g->temperature == 1.0);
  CHECK(g->top_p == 1.0);
  CHECK(g->eos_token_ids == std::vector<int32_t>{1});
  CHECK(g->unused_keys.empty());
}

TEST_CASE("generation_config.json: absent keys keep their defaults") {
  const auto none = ParseGenerationConfig("{}", "g.json");
  REQUIRE_OK(none);
  CHECK_FALSE(none->do_sample);
  CHECK(none->temperature == 1.0);
  CHECK(none->top_p == 1.0);
  CHECK(none->min_p == 0.0);
  CHECK(none->top_k == 0);
  CHECK(none->eos_token_ids.empty());
  CHECK(none->repetition_penalty == 1.0);
  CHECK(none->max_new_tokens == 0);
  const auto all = ParseGenerationConfig(
      R"({"do_sample":true,"temperature":0.6,"top_p":0.95,"min_p":0.05,"top_k":20,)"
      R"("eos_token_id":[1,7],"repetition_penalty":1.3,"max_new_tokens":3,"pad_token_id":2,)"
      R"("num_beams":4,"typical_p":null,"length_penalty":1.0})",
      "g.json");
  REQUIRE_OK(all);
  CHECK(all->do_sample);
  CHECK(all->temperature == 0.6);
  CHECK(all->top_p == 0.95);
  CHECK(all->min_p == 0.05);
  CHECK(all->top_k == 20);
  CHECK(all->eos_token_ids == std::vector<int32_t>{1, 7});
  CHECK(all->repetition_penalty == 1.3);
  CHECK(all->max_new_tokens == 3);
  CHECK(all->unused_keys == std::vector<std::string>{"num_beams", "length_penalty"});
}

TEST_CASE("generation_config.json: impossible values are refused by key and value") {
  struct Case {
    const char *json, *message;
  };
  const Case cases[] = {
      {R"({"do_sample":1})", "g.json: do_sample is 1; expected true or false"},
      {R"({"temperature":-1})", "g.json: temperature is -1; expected a number from 0 to"},
      {R"({"temperature":"hot"})", "g.json: temperature is \"hot\"; expected a number"},
      {R"({"top_p":1.5})", "g.json: top_p is 1.5; expected a number from 0 to 1"},
      {R"({"min_p":-0.1})", "g.json: min_p is -0.1; expected a number from 0 to 1"},
      {R"({"top_k":-1})", "g.json: top_k is -1; expected an integer from 0 to"},
      {R"({"top_k":2.5})", "g.json: top_k is 2.5; expected an integer"},
      {R"({"repetition_penalty":0})",
       "g.json: repetition_penalty is 0; expected a number from 0.01 to 100"},
      {R"({"max_new_tokens":0})", "g.json: max_new_tokens is 0; expected an integer from 1 to"},
      {R"({"eos_token_id":"</s>"})", "g.json: eos_token_id is \"</s>\"; expected an integer"},
      {R"({"eos_token_id":[1,-1]})", "g.json: eos_token_id is -1; expected an integer"},
  };
  for (const Case& c : cases) {
    REQUIRE_FAILS(ParseGenerationConfig(c.json, "g.json"), Code::kInvalidArgument, c.message);
  }
  REQUIRE_FAILS(ParseGenerationConfig("[", "g.json"), Code::kDataLoss, "g.json: ");
}

}  // namespace
}  // namespace dsv4
