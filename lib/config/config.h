// SPDX-License-Identifier: Apache-2.0
// The model's configuration: config.json, validated against the one supported family
// (model.md section 1). Every later layer may rely on the bounds that ParseModelConfig checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// Fixed by the kernels' design; a checkpoint with other values is refused.
inline constexpr int64_t kHeadDim = 512;        // one key/value row
inline constexpr int64_t kRopeDim = 64;         // its last 64 dims carry RoPE
inline constexpr int64_t kIndexHeadDim = 128;   // one index key
inline constexpr int64_t kSlidingWindow = 128;  // tokens
inline constexpr int64_t kStreams = 4;          // residual streams of the hyper-connections

struct RopeScaling {
  double factor = 0;
  int64_t original_max_position_embeddings = 0;
  double beta_fast = 0, beta_slow = 0;
};

// What drafts tokens for the model to verify.
enum class DrafterKind : int32_t {
  kNone,
  kMtp,     // a block that drafts a token a pass from its own output (e_proj)
  kDspark,  // stages that draft a block of tokens a pass from tapped layers (main_proj)
  kNgram,   // the tokens that followed an earlier occurrence of the last tokens; no weights
};

const char* DrafterName(DrafterKind kind);  // "MTP", "DSpark", "n-gram", "none"

inline constexpr uint32_t kMaxDrafterStages = 16;
inline constexpr int64_t kMostBlockRows = 16;  // rows of a sequence in a pass of a DSpark drafter

// The dspark_* keys.
struct DsparkConfig {
  int64_t block_size = 0;  // tokens that a pass drafts, up to kMostBlockRows; 0: keys are absent
  int64_t noise_token_id = 0;
  int64_t markov_rank = 0;
  std::vector<int32_t> target_layers;  // layers whose outputs are tapped, ascending
};

struct ModelConfig {
  int64_t hidden_size = 0;          // D
  int64_t num_hidden_layers = 0;    // L
  int64_t num_attention_heads = 0;  // H
  int64_t q_lora_rank = 0;
  int64_t o_groups = 0;  // G, divides H
  int64_t o_lora_rank = 0;
  std::vector<int32_t> compress_ratios;       // [>= L]: 0, 4 or 128; past the layers 0
  int64_t index_n_heads = 0, index_topk = 0;  // 0 when no layer has ratio 4
  int64_t n_routed_experts = 0;               // E
  int64_t num_experts_per_tok = 0;            // K
  int64_t moe_intermediate_size = 0;          // I
  int64_t num_hash_layers = 0;
  std::string expert_dtype;  // "fp4", "fp8" or empty; the dtypes of the tensors take precedence
  double routed_scaling_factor = 0;
  double swiglu_limit = 0;  // 0 = no clamp
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0, rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;  // tokens
  double rope_theta = 0, compress_rope_theta = 0;
  RopeScaling rope_scaling;
  int64_t num_nextn_predict_layers = 0;  // MTP blocks; unused for other drafters
  DsparkConfig dspark;
  int64_t vocab_size = 0;
  int64_t bos_token_id = 0;
  std::vector<int32_t> eos_token_ids;  // from eos_token_id, a number or a list; one at least
  // dsv4_synthetic_layers, a key of our own for measurements in folders without weights: this many
  // layers get random weights. 0: the folder has weights.
  int64_t synthetic_layers = 0;
  std::string synthetic_mix;  // dsv4_synthetic_mix: their types, by a name of synthetic_mix.h
};

// The drafter of synthetic weights for the configuration. In files, the tensors tell the drafter.
DrafterKind DrafterOf(const ModelConfig& config);

// Reads a config.json, also one that transformers 5 wrote (rope_parameters, layer_types,
// mlp_layer_types). Keys of other models are ignored where they say what holds for the family, and
// refused where they contradict it. Unknown keys are ignored. `source` names the file in messages.
// Errors; each names the key and the value:
// - InvalidArgument: a value is missing or impossible.
// - Unsupported: a valid value that this build cannot run (another head_dim, ...).
// `key_name`: what messages call a key, given with its path ("rope_scaling.factor"); null: that.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view source,
                                             std::string (*key_name)(absl::string_view) = nullptr);

// The first `layers` main layers of a configuration, and its MTP block. REQUIRES: 1 <= layers <=
// num_hidden_layers.
ModelConfig FirstLayers(const ModelConfig& config, int64_t layers);

// Sampling defaults of generation_config.json. An absent key keeps the default below.
struct GenerationConfig {
  bool do_sample = false;  // false: greedy
  double temperature = 1.0, top_p = 1.0, min_p = 0.0;
  int64_t top_k = 0;  // 0 = off
  double repetition_penalty = 1.0;
  int64_t max_new_tokens = 0;            // 0 = no limit
  std::vector<int32_t> eos_token_ids;    // from eos_token_id, a number or a list; may be empty
  std::vector<std::string> unused_keys;  // settings of the file that the library ignores
};

absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view json,
                                                       absl::string_view source);

}  // namespace dsv4
