// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json and as a generation_config.json: what is accepted is within the bounds
// that the library relies on.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lib/config/config.h"

namespace {

using dsv4::ModelConfig;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

bool Within(double value, double low, double high) { return value >= low && value <= high; }

bool IsBlocks(int64_t dims) { return dims > 0 && dims <= 1 << 16 && dims % 128 == 0; }

bool IsCount(int64_t count) { return count > 0 && count <= 1 << 12; }

void CheckModel(const ModelConfig& c) {
  for (const int64_t dims : {c.hidden_size, c.q_lora_rank, c.o_lora_rank, c.moe_intermediate_size})
    Require(IsBlocks(dims));
  for (const int64_t count : {c.num_hidden_layers, c.num_attention_heads, c.o_groups,
                              c.n_routed_experts, c.num_experts_per_tok})
    Require(IsCount(count));
  Require(c.num_attention_heads % c.o_groups == 0);
  Require(c.num_experts_per_tok <= c.n_routed_experts);
  Require(c.num_hash_layers >= 0 && c.num_hash_layers <= c.num_hidden_layers);
  Require(c.num_nextn_predict_layers == 0 || IsCount(c.num_nextn_predict_layers));
  Require(static_cast<int64_t>(c.compress_ratios.size()) >= c.num_hidden_layers);
  bool indexed = false;
  for (const int32_t ratio : c.compress_ratios) {
    Require(ratio == 0 || ratio == 4 || ratio == 128);
    indexed = indexed || ratio == 4;
  }
  if (indexed) Require(IsCount(c.index_n_heads) && c.index_topk > 0 && c.index_topk <= 1 << 16);
  Require(c.vocab_size > 0 && c.vocab_size <= 1 << 24);
  Require(c.bos_token_id >= 0 && c.bos_token_id < c.vocab_size);
  Require(!c.eos_token_ids.empty());
  for (const int32_t token : c.eos_token_ids) Require(token >= 0 && token < c.vocab_size);
  Require(c.max_position_embeddings > 0 && c.max_position_embeddings <= INT32_MAX);
  Require(c.hc_sinkhorn_iters >= 1 && c.hc_sinkhorn_iters <= 1000);
  Require(Within(c.hc_eps, 1e-30, 1) && Within(c.rms_norm_eps, 1e-30, 1));
  Require(Within(c.rope_theta, 2, 1e12) && Within(c.compress_rope_theta, 2, 1e12));
  Require(Within(c.swiglu_limit, 0, 1e6) && Within(c.routed_scaling_factor, 1e-6, 1e6));
  Require(Within(c.rope_scaling.factor, 1, 1e6));
  Require(Within(c.rope_scaling.beta_slow, 1e-3, c.rope_scaling.beta_fast));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  const auto model = dsv4::ParseModelConfig(json, "fuzz");
  if (model.ok()) CheckModel(*model);
  const auto generation = dsv4::ParseGenerationConfig(json, "fuzz");
  if (generation.ok()) {
    Require(Within(generation->temperature, 0, 1e6));
    Require(Within(generation->top_p, 0, 1) && Within(generation->min_p, 0, 1));
    Require(Within(generation->repetition_penalty, 0.01, 100));
    Require(generation->max_new_tokens >= 0 && generation->max_new_tokens <= INT32_MAX);
    Require(generation->top_k >= 0 && generation->top_k <= INT32_MAX);
    for (const int32_t token : generation->eos_token_ids) Require(token >= 0);
  }
  return 0;
}
