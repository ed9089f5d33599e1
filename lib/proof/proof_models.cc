// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/proof_models.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"
#include "lib/proof/launch_memory.h"
#include "lib/weights/synthetic_mix.h"

namespace dsv4 {
namespace {

// Every kind of layer, with widths as small as the kernels take them: a change here or in the
// passes needs new known answers.
constexpr char kConfig[] = R"({
  "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"],
  "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 3, "num_hash_layers": 1,
  "compress_ratios": [0, 4, 128, 0], "num_nextn_predict_layers": 1,
  "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
  "q_lora_rank": 128, "o_groups": 4, "o_lora_rank": 128, "sliding_window": 128,
  "index_n_heads": 8, "index_head_dim": 128, "index_topk": 32,
  "n_routed_experts": 16, "num_experts_per_tok": 4, "n_shared_experts": 1,
  "moe_intermediate_size": 128, "routed_scaling_factor": 2.5, "norm_topk_prob": true,
  "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "swiglu_limit": 10,
  "hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false,
  "max_position_embeddings": 1024, "rope_theta": 10000, "compress_rope_theta": 160000,
  "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64,
                   "beta_fast": 32, "beta_slow": 1},
  "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16", "expert_dtype": "fp4",
  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0",
                          "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
})";

constexpr int32_t kBlockRows = 4;  // of the DSpark drafter

std::vector<int32_t> TokensFrom(int64_t position, int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t p = position; p < position + count; ++p) {
    tokens.push_back(static_cast<int32_t>((p * 37 + p / 8 + 11) % vocab));
  }
  return tokens;
}

// Cache rows and states in front of a sequence's next row, the same on every backend and rank.
class Past {
 public:
  Past(Engine& engine, int rank, const SequenceRows& sequence)
      : engine_(engine),
        rank_(rank),
        sequence_(sequence),
        memory_(&engine.cache().device(rank), engine.host_rows()) {}

  absl::Status Fill() {
    const absl::Span<const LayerCache> layers = engine_.cache().layers(rank_);
    const std::vector<int32_t>& ratios = engine_.config().compress_ratios;
    for (size_t i = 0; i < layers.size(); ++i) {
      DSV4_RETURN_IF_ERROR(FillWindow(layers[i].window));
      const int64_t ratio = i < ratios.size() ? ratios[i] : 0;
      if (ratio == 0) continue;
      DSV4_RETURN_IF_ERROR(FillCompressedRows(layers[i].compressed, ratio, kKvRowElements));
      DSV4_RETURN_IF_ERROR(FillState(layers[i].states, ratio, kKvRowElements));
      if (ratio != kCsaRatio) continue;
      DSV4_RETURN_IF_ERROR(FillCompressedRows(layers[i].index_keys, ratio, kIndexKeyElements));
      DSV4_RETURN_IF_ERROR(FillState(layers[i].index_states, ratio, kIndexKeyElements));
    }
    return absl::OkStatus();
  }

 private:
  // From -`most` to `most`.
  float Number(float most) { return (static_cast<float>(random_() >> 40) * 0x1p-23f - 1) * most; }

  absl::Status FillRows(const RowPool& pool, int64_t width,
                        std::vector<LaunchTensor::Place> places) {
    const auto count = static_cast<int64_t>(places.size());
    LaunchTensor rows{.type = LaunchTensor::Type::kCacheRows,
                      .rows = count,
                      .width = width,
                      .pool = pool,
                      .places = std::move(places)};
    std::vector<float> values(static_cast<size_t>(rows.rows * width));
    // The elements behind the quantised ones are bf16.
    for (float& value : values) value = MadeUp(random_, 2);
    return memory_.Write(rows, std::move(values));
  }

  absl::Status FillWindow(const RowPool& pool) {
    std::vector<LaunchTensor::Place> places;
    // The drafter's layer has no row of its own in the first slot.
    for (int64_t p = FirstWindowRow(sequence_.first_position); p <= sequence_.first_position; ++p) {
      places.push_back({sequence_.window_blocks[p / kWindowBlockTokens], p % kWindowBlockTokens});
    }
    return FillRows(pool, kKvRowElements, std::move(places));
  }

  absl::Status FillCompressedRows(const RowPool& pool, int64_t ratio, int64_t width) {
    const int64_t per_block = kCompressedKvBlockTokens / ratio;
    std::vector<LaunchTensor::Place> places;
    for (int64_t g = 0; g < sequence_.first_position / ratio; ++g) {
      places.push_back({sequence_.compressed_kv_blocks[g / per_block], g % per_block});
    }
    return FillRows(pool, width, std::move(places));
  }

  // Triples of maxima, sums of weights, weighted sums.
  absl::Status FillState(const StatePool& pool, int64_t ratio, int64_t width) {
    std::vector<float> values(static_cast<size_t>(CompressorStateFloats(ratio, width)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int64_t>(i) / width % 3 == 1 ? 1.5f + Number(0.5f) : Number(1);
    }
    const auto width_of_all = static_cast<int64_t>(values.size());
    const LaunchTensor state{.type = LaunchTensor::Type::kF32,
                             .data = pool.Slot(sequence_.state_slot),
                             .rows = 1,
                             .width = width_of_all,
                             .stride = width_of_all};
    return memory_.Write(state, std::move(values));
  }

  Engine& engine_;
  const int rank_;
  const SequenceRows& sequence_;
  const LaunchMemory memory_;
  std::mt19937_64 random_{1};
};

}  // namespace

std::string ProofConfig(ProofModel model) {
  if (model == ProofModel::kMtp) return kConfig;
  if (model == ProofModel::kBlocks) {
    // Wide enough for blocks of 256 elements.
    return absl::StrReplaceAll(
        kConfig, {{"\"q_lora_rank\": 128", "\"q_lora_rank\": 256"},
                  {"\"moe_intermediate_size\": 128", "\"moe_intermediate_size\": 256"}});
  }
  const std::string one_layer = absl::StrReplaceAll(
      kConfig,
      {{"\"num_hidden_layers\": 3", "\"num_hidden_layers\": 1"}, {"[0, 4, 128, 0]", "[0, 0]"}});
  if (model == ProofModel::kNvfp4) return one_layer;
  return absl::StrReplaceAll(one_layer,
                             {{"\"vocab_size\"", absl::StrCat("\"dspark_block_size\": ", kBlockRows,
                                                              ", \"dspark_noise_token_id\": 7"
                                                              ", \"dspark_markov_rank\": 64"
                                                              ", \"dspark_target_layer_ids\": [0]"
                                                              ", \"vocab_size\"")}});
}

EngineOptions ProofEngineOptions(ProofModel model) {
  EngineOptions options;
  options.max_sessions = 2;
  options.drafts = model == ProofModel::kMtp || model == ProofModel::kDspark;
  options.synthetic.nvfp4_experts = model == ProofModel::kNvfp4;
  if (model == ProofModel::kBlocks) options.synthetic.mix = kEveryType;
  if (model == ProofModel::kDspark) options.max_draft_tokens = kBlockRows;
  return options;
}

// A bf16 number from -`most` to `most`.
float MadeUp(std::mt19937_64& random, float most) {
  const float number = (static_cast<float>(random() >> 40) * 0x1p-23f - 1) * most;
  return Bf16ToFloat(FloatToBf16(number));
}

absl::Status ProofTimeline::Open() {
  DSV4_ASSIGN_OR_RETURN(KvSequence sequence, KvSequence::Open(&engine_.cache()));
  sequence_.emplace(std::move(sequence));
  DSV4_RETURN_IF_ERROR(Reserve(kProofPast));
  engine_.batch().Commit();
  return absl::OkStatus();
}

absl::Status ProofTimeline::Pass(int32_t rows) {
  DSV4_RETURN_IF_ERROR(Reserve(rows));
  const int64_t first = sequence_->length();
  StepBatch& batch = engine_.batch();
  ModelRanks& model = engine_.model();
  for (int rank = 0; first == kProofPast && rank < model.ranks(); ++rank) {
    DSV4_RETURN_IF_ERROR(Past(engine_, rank, batch.sequence(0)).Fill());
  }
  LogitRequests head;
  head.Add(0, LogitQuestion{});
  if (rows > 1) head.Add(rows - 1, LogitQuestion{});
  DSV4_RETURN_IF_ERROR(model.Forward(batch.rows(), batch.tokens(), nullptr, head));
  DSV4_RETURN_IF_ERROR(model.Synchronize());
  for (int32_t row = 0; row < head.size(); ++row) {
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> logits, model.logits().Row(row));
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    DSV4_RETURN_IF_ERROR(ExpectCandidate(logits, model.logits().Candidates(row)));
  }
  if (Dspark()) {
    DSV4_RETURN_IF_ERROR(DraftBlock(first + rows));
  } else if (engine_.info().drafter == DrafterKind::kMtp) {
    DSV4_RETURN_IF_ERROR(DraftAfter(first, rows));
  }
  batch.Commit();
  return absl::OkStatus();
}

absl::Status ProofTimeline::Reserve(int32_t rows) {
  StepBatch& batch = engine_.batch();
  batch.Clear();
  return batch.Add(&*sequence_, TokensFrom(sequence_->length(), rows, engine_.config().vocab_size),
                   Dspark() ? kBlockRows : 1);
}

absl::Status ProofTimeline::DraftAfter(int64_t first, int32_t rows) {
  ModelRanks& model = engine_.model();
  StepBatch drafts(model.limits());
  drafts.AddMtp(*sequence_, TokensFrom(first + 1, rows, engine_.config().vocab_size), first + 1);
  std::vector<StreamSource> sources;
  for (int32_t row = 0; row < rows; ++row) sources.push_back(StreamSource::OfRow(row));
  DSV4_RETURN_IF_ERROR(model.ForwardDraft(drafts.rows(), drafts.tokens(), sources));
  return model.Synchronize();
}

absl::Status ProofTimeline::DraftBlock(int64_t begin) {
  ModelRanks& model = engine_.model();
  const std::vector<int32_t> tokens = TokensFrom(begin, kBlockRows, engine_.config().vocab_size);
  StepBatch block(model.limits());
  block.AddBlock(*sequence_, tokens, begin);
  std::vector<int32_t> rows(kBlockRows);
  std::iota(rows.begin(), rows.end(), 0);
  DSV4_RETURN_IF_ERROR(model.ForwardDraft(block.rows(), block.tokens(), {}, {.rows = rows}));
  DSV4_RETURN_IF_ERROR(model.FollowDrafts(rows, tokens));
  DSV4_RETURN_IF_ERROR(model.Synchronize());
  for (const int32_t row : rows) {
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> logits, model.logits().Row(row));
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    logits_.push_back(model.Confidence(row));
  }
  return absl::OkStatus();
}

absl::Status ProofTimeline::ExpectCandidate(absl::Span<const float> logits,
                                            const CandidateList* list) {
  if (list == nullptr) return absl::OkStatus();
  const auto best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (int32_t i = 0; i < list->count; ++i) {
    if (list->tokens[i].token == best && list->tokens[i].logit == logits[best]) {
      return absl::OkStatus();
    }
  }
  return Unsupported(OpName(Op::kTokenCandidates), " (vocab ", logits.size(), "): token ", best,
                     " has the largest logit but is not among the ", list->count, " candidates");
}

}  // namespace dsv4
