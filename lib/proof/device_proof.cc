// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/device_proof.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/device/watched_thread.h"
#include "lib/io/content_hash.h"
#include "lib/kv/window_reach.h"
#include "lib/proof/known_answers.h"
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

// The model with an MTP block, one with a DSpark drafter for what that alone computes, one with the
// block formats of GGUF files, and one with NVFP4 experts for what those compute.
enum class ProofModel { kMtp, kDspark, kBlocks, kNvfp4 };
constexpr ProofModel kModels[] = {ProofModel::kMtp, ProofModel::kDspark, ProofModel::kBlocks,
                                  ProofModel::kNvfp4};

constexpr int32_t kBlockRows = 4;  // of the DSpark drafter

std::string ConfigOf(ProofModel model) {
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

EngineOptions OptionsFor(ProofModel model) {
  EngineOptions options;
  options.max_sessions = 2;
  options.drafts = model == ProofModel::kMtp || model == ProofModel::kDspark;
  options.synthetic.nvfp4_experts = model == ProofModel::kNvfp4;
  if (model == ProofModel::kBlocks) options.synthetic.mix = kEveryType;
  if (model == ProofModel::kDspark) options.max_draft_tokens = kBlockRows;
  return options;
}

// Tokens in front of the passes, whose cache rows are made up: the last of four that are computed
// ends a compressed block of either ratio.
constexpr int32_t kPast = 252;
constexpr int32_t kKnownPasses[] = {1, 3};  // rows
constexpr int32_t kLongRowsInBlocks = 72;   // of the model in block formats, a tile and more
constexpr int32_t kShortRows = 8;           // of a pass that the long prompt is computed in, too

std::vector<int32_t> TokensFrom(int64_t position, int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (int64_t p = position; p < position + count; ++p) {
    tokens.push_back(static_cast<int32_t>((p * 37 + p / 8 + 11) % vocab));
  }
  return tokens;
}

// A bf16 number from -`most` to `most`.
float MadeUp(std::mt19937_64& random, float most) {
  const float number = (static_cast<float>(random() >> 40) * 0x1p-23f - 1) * most;
  return Bf16ToFloat(FloatToBf16(number));
}

LaunchMemory MemoryOf(Engine& engine) { return {&engine.device(), engine.host_rows()}; }

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

// One sequence of the model, behind a past.
class Timeline {
 public:
  explicit Timeline(Engine& engine) : engine_(engine) {}

  absl::Status Open() {
    DSV4_ASSIGN_OR_RETURN(KvSequence sequence, KvSequence::Open(&engine_.cache()));
    sequence_.emplace(std::move(sequence));
    DSV4_RETURN_IF_ERROR(Reserve(kPast));
    engine_.batch().Commit();
    return absl::OkStatus();
  }

  // The next `rows` rows through the layers, the head and the drafter's block.
  absl::Status Pass(int32_t rows) {
    DSV4_RETURN_IF_ERROR(Reserve(rows));
    const int64_t first = sequence_->length();
    StepBatch& batch = engine_.batch();
    ModelRanks& model = engine_.model();
    for (int rank = 0; first == kPast && rank < model.ranks(); ++rank) {
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

  // Of the first and the last row of each pass, and of blocks that were drafted.
  const std::vector<float>& logits() const { return logits_; }

 private:
  bool Dspark() const { return engine_.info().drafter == DrafterKind::kDspark; }

  absl::Status Reserve(int32_t rows) {
    StepBatch& batch = engine_.batch();
    batch.Clear();
    return batch.Add(&*sequence_,
                     TokensFrom(sequence_->length(), rows, engine_.config().vocab_size),
                     Dspark() ? kBlockRows : 1);
  }

  // The MTP block on the rows from `first` on.
  absl::Status DraftAfter(int64_t first, int32_t rows) {
    ModelRanks& model = engine_.model();
    StepBatch drafts(model.limits());
    drafts.AddMtp(*sequence_, TokensFrom(first + 1, rows, engine_.config().vocab_size), first + 1);
    std::vector<StreamSource> sources;
    for (int32_t row = 0; row < rows; ++row) sources.push_back(StreamSource::OfRow(row));
    DSV4_RETURN_IF_ERROR(model.ForwardDraft(drafts.rows(), drafts.tokens(), sources));
    return model.Synchronize();
  }

  // A block of the DSpark drafter from `begin` on, and what its tokens say of each other.
  absl::Status DraftBlock(int64_t begin) {
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

  // Backends in the host's memory make no lists.
  static absl::Status ExpectCandidate(absl::Span<const float> logits, const CandidateList* list) {
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

  Engine& engine_;
  std::optional<KvSequence> sequence_;
  std::vector<float> logits_;
};

absl::Status RunKnownPasses(Engine& engine) {
  Timeline timeline(engine);
  DSV4_RETURN_IF_ERROR(timeline.Open());
  for (const int32_t rows : kKnownPasses) DSV4_RETURN_IF_ERROR(timeline.Pass(rows));
  return absl::OkStatus();
}

// Records only the launches of the DSpark drafter, with generated inputs that are the same on every
// device. So the other launches of its model need no known answers.
class OfDspark final : public LaunchRecorder {
 public:
  OfDspark(LaunchRecorder* inner, const LaunchMemory& memory) : inner_(inner), memory_(memory) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    const bool mean =
        entry.op == Op::kHcHead && static_cast<const HcHeadParams*>(params)->fn == nullptr;
    if (!mean && entry.op != Op::kDraftLogits) return launch();
    std::mt19937_64 random(1);
    for (const LaunchTensor& input : entry.tensors(params, memory_.device()).in) {
      std::vector<float> values(static_cast<size_t>(input.rows * input.width));
      for (float& value : values) value = MadeUp(random, 2);
      status_.Update(memory_.Write(input, std::move(values)));
    }
    inner_->Record(entry, params, cost, launch);
  }
  const absl::Status& status() const { return status_; }

 private:
  LaunchRecorder* const inner_;
  const LaunchMemory memory_;
  absl::Status status_;
};

// Records only the launches of experts.
class OfExperts final : public LaunchRecorder {
 public:
  explicit OfExperts(LaunchRecorder* inner) : inner_(inner) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    if (entry.op != Op::kExpertFfn) return launch();
    inner_->Record(entry, params, cost, launch);
  }

 private:
  LaunchRecorder* const inner_;
};

// The known passes of a model, seen by `recorder`.
absl::Status RunSeen(ProofModel model, Engine& engine, LaunchRecorder* recorder) {
  OfDspark of_dspark(recorder, MemoryOf(engine));
  OfExperts of_experts(recorder);
  if (model == ProofModel::kDspark) recorder = &of_dspark;
  if (model == ProofModel::kNvfp4) recorder = &of_experts;
  engine.set_recorder(recorder);
  const absl::Status ran = RunKnownPasses(engine);
  engine.set_recorder(nullptr);
  DSV4_RETURN_IF_ERROR(of_dspark.status());
  return ran;
}

// Runs `launched` after each launch of another recorder's.
class AfterLaunches final : public LaunchRecorder {
 public:
  AfterLaunches(LaunchRecorder* inner, const ProofOptions& options)
      : inner_(inner), launched_(options.launched) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    inner_->Record(entry, params, cost, [&] {
      launch();
      if (launched_) launched_(entry, params);
    });
  }

 private:
  LaunchRecorder* const inner_;
  const std::function<void(const KernelEntry&, const void*)>& launched_;
};

// Nothing but the launches: with a recorder they are one after the other, and in no graph.
class Launches final : public LaunchRecorder {
  void Record(const KernelEntry&, const void*, const Cost&,
              absl::FunctionRef<void()> launch) override {
    launch();
  }
};

// Hashes of the rows of every output. The rows of consecutive passes are joined.
class OutputRows final : public LaunchRecorder {
 public:
  struct Output {
    Op op;
    const char* name;
    std::vector<ContentHash> rows;
  };

  explicit OutputRows(const LaunchMemory& memory) : memory_(memory) {}
  void NextPass() { next_ = 0; }
  void Record(const KernelEntry& entry, const void* params, const Cost&,
              absl::FunctionRef<void()> launch) override {
    launch();
    if (!status_.ok()) return;
    for (const LaunchOutput& out : entry.tensors(params, memory_.device()).out) {
      // A pass leaves the states behind its own last row.
      if (absl::string_view(out.name) == "state") continue;
      const absl::StatusOr<std::vector<float>> values = memory_.Read(out.tensor);
      if (!values.ok()) {
        status_ = values.status();
        return;
      }
      if (next_ == outputs_.size()) outputs_.push_back({entry.op, out.name, {}});
      for (int64_t row = 0; row < out.tensor.rows; ++row) {
        const auto* bytes =
            reinterpret_cast<const uint8_t*>(values->data() + row * out.tensor.width);
        outputs_[next_].rows.push_back(
            HashOf({bytes, static_cast<size_t>(out.tensor.width) * sizeof(float)}));
      }
      ++next_;
    }
  }

  const absl::Status& status() const { return status_; }
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  const LaunchMemory memory_;
  size_t next_ = 0;
  std::vector<Output> outputs_;
  absl::Status status_;
};

class Proof {
 public:
  explicit Proof(const ProofOptions& options) : options_(options) {}

  absl::StatusOr<DeviceProof> Run() {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int32_t> devices =
        options_.devices.empty() ? std::vector<int32_t>{0} : options_.devices;
    std::map<ProofModel, std::vector<float>> logits;
    // The parts of the CPU are alike.
    const size_t alone = options_.backend == Backend::kCuda ? devices.size() : 1;
    for (const int32_t device : absl::MakeConstSpan(devices).first(alone)) {
      std::map<ProofModel, std::shared_ptr<Engine>> engines;
      for (const ProofModel model : kModels) {
        DSV4_ASSIGN_OR_RETURN(engines[model], Open(model, {device}));
      }
      const std::string name = NameOf(*engines.begin()->second, device);
      DSV4_RETURN_IF_ERROR(Named(name, KnownAnswersHold(engines)));
      // A block of DSpark has as many rows in every step.
      for (const ProofModel model : {ProofModel::kMtp, ProofModel::kBlocks, ProofModel::kNvfp4}) {
        const int32_t rows = model == ProofModel::kBlocks
                                 ? std::min(options_.long_rows, kLongRowsInBlocks)
                                 : options_.long_rows;
        DSV4_RETURN_IF_ERROR(Named(name, RowRuleHolds(*engines[model], rows)));
      }
      for (const auto& [model, engine] : engines) {
        DSV4_ASSIGN_OR_RETURN(logits[model], LogitsOf(*engine));
        DSV4_RETURN_IF_ERROR(Named(name, GraphsHold(*engine, logits[model])));
      }
    }
    for (const ProofModel model : kModels) {
      if (devices.size() == 1) break;
      DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Open(model, devices));
      DSV4_ASSIGN_OR_RETURN(const std::vector<float> together, LogitsOf(*engine));
      if (together != logits[model]) {
        return Refused(absl::StrCat("devices ", absl::StrJoin(devices, ", ")),
                       "exchange: together they compute other logits than one of them alone");
      }
    }
    proof_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(proof_);
  }

 private:
  absl::StatusOr<std::shared_ptr<Engine>> Open(ProofModel model,
                                               const std::vector<int32_t>& devices) const {
    DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, OpenOn(model, devices));
    if (options_.opened) options_.opened(*engine);
    return engine;
  }

  absl::StatusOr<std::shared_ptr<Engine>> OpenOn(ProofModel model,
                                                 const std::vector<int32_t>& devices) const {
    EngineOptions options = OptionsFor(model);
    options.backend = options_.backend;
    options.devices = devices;
    options.tuning_dir = options_.tuning_dir;
    options.threads = options_.threads;
    options.context_tokens = kPast + std::max<int32_t>(options_.long_rows, 4) + 8;
    options.cache_tokens = 4 * options.context_tokens;
    options.prefill_chunk_tokens = std::max(kPast, options_.long_rows);
    options.config_number = options_.config;
    options.exchange = options_.exchange;
    options.kernel_set = options_.kernel_set;
    return Engine::OpenRandom(ConfigOf(model), options);
  }

  static std::string NameOf(const Engine& engine, int32_t device) {
    return absl::StrCat(engine.info().backend == Backend::kCuda ? "cuda:" : "cpu:", device, " (",
                        engine.device_name(), ")");
  }

  static absl::Status Refused(const std::string& name, absl::string_view finding) {
    return Unsupported(name, " is refused: it failed its known answers: ", finding);
  }

  // Findings get the device's name; other errors have it.
  static absl::Status Named(const std::string& name, const absl::Status& status) {
    return IsUnsupported(status) ? Refused(name, status.message()) : status;
  }

  absl::Status KnownAnswersHold(const std::map<ProofModel, std::shared_ptr<Engine>>& engines) {
    DSV4_ASSIGN_OR_RETURN(std::vector<LaunchRecord> launches,
                          DecodeKnownAnswers(BuiltinKnownAnswers()));
    OperatorComparison comparison;
    comparison.set_launches(std::move(launches));
    absl::Status ran;
    for (const auto& [model, engine] : engines) {
      AfterLaunches recorder(comparison.tested(MemoryOf(*engine)), options_);
      ran.Update(RunSeen(model, *engine, &recorder));
    }
    const absl::Status same = comparison.Complete();
    // Reports a wrong operator first: other differences may follow from it.
    for (const auto& [name, flips] : comparison.flips()) {
      if (flips.Holds()) continue;
      return Unsupported(name, " (", flips.shape, "): ", flips.Describe());
    }
    DSV4_RETURN_IF_ERROR(ran);
    DSV4_RETURN_IF_ERROR(same);
    for (const auto& [name, flips] : comparison.flips()) proof_.flips[name].Add(flips, flips.shape);
    return absl::OkStatus();
  }

  // A prompt of `rows` rows.
  absl::Status RunLong(Engine& engine, int32_t rows, int32_t pass_rows, OutputRows* outputs) const {
    Timeline timeline(engine);
    DSV4_RETURN_IF_ERROR(timeline.Open());
    AfterLaunches recorder(outputs, options_);
    engine.set_recorder(&recorder);
    absl::Status status;
    for (int32_t row = 0; row < rows && status.ok(); row += pass_rows) {
      outputs->NextPass();
      status = timeline.Pass(std::min(pass_rows, rows - row));
    }
    engine.set_recorder(nullptr);
    DSV4_RETURN_IF_ERROR(outputs->status());
    return status;
  }

  absl::Status RowRuleHolds(Engine& engine, int32_t long_rows) {
    OutputRows together(MemoryOf(engine)), parts(MemoryOf(engine));
    DSV4_RETURN_IF_ERROR(RunLong(engine, long_rows, long_rows, &together));
    DSV4_RETURN_IF_ERROR(RunLong(engine, long_rows, kShortRows, &parts));
    if (together.outputs().size() != parts.outputs().size()) {
      return Internal("a long pass has ", together.outputs().size(), " outputs, short ones ",
                      parts.outputs().size());
    }
    for (size_t i = 0; i < parts.outputs().size(); ++i) {
      const OutputRows::Output &one = together.outputs()[i], &other = parts.outputs()[i];
      if (one.rows.size() != other.rows.size()) continue;  // the head's
      const auto differs =
          std::mismatch(one.rows.begin(), one.rows.end(), other.rows.begin()).first;
      if (differs == one.rows.end()) continue;
      return Unsupported(OpName(one.op), ".", one.name, " (rows ", long_rows, "): row ",
                         differs - one.rows.begin(), " differs from its result in a pass of ",
                         kShortRows, " rows");
    }
    proof_.long_launches += static_cast<int64_t>(parts.outputs().size());
    return absl::OkStatus();
  }

  // What engines do, against the same kernels one after the other.
  absl::Status GraphsHold(Engine& engine, const std::vector<float>& logits) const {
    Launches launches;
    engine.set_recorder(&launches);
    const absl::StatusOr<std::vector<float>> alone = LogitsOf(engine);
    engine.set_recorder(nullptr);
    DSV4_RETURN_IF_ERROR(alone.status());
    if (*alone == logits) return absl::OkStatus();
    return Unsupported(
        "graphs: a step replayed from a graph gives other logits than its kernels one by one");
  }

  // With graphs and concurrent streams, if the device has them.
  static absl::StatusOr<std::vector<float>> LogitsOf(Engine& engine) {
    Timeline timeline(engine);
    DSV4_RETURN_IF_ERROR(timeline.Open());
    for (const int32_t rows : kKnownPasses) DSV4_RETURN_IF_ERROR(timeline.Pass(rows));
    return timeline.logits();
  }

  const ProofOptions& options_;
  DeviceProof proof_;
};

}  // namespace

absl::StatusOr<DeviceProof> ProveDevices(const ProofOptions& options) {
  return Proof(options).Run();
}

namespace {

// The tests of this process.
struct Proofs {
  using Asked = std::pair<std::vector<int32_t>, std::string>;  // devices, tuning_dir
  Mutex testing;                                               // held while a test runs
  std::map<Asked, ProvenKernels> passed ABSL_GUARDED_BY(testing);
  Mutex mutex;
  std::map<Asked, std::string> refused ABSL_GUARDED_BY(mutex);  // the last result
};

Proofs& TheProofs() {
  static Proofs proofs;
  return proofs;
}

// ProveDevices, or DeviceLost if a call of the driver does not return within the limit. The test's
// memory then stays behind.
absl::StatusOr<DeviceProof> ProveWithin(std::chrono::milliseconds limit,
                                        const ProofOptions& options) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<WatchedThread> thread, WatchedThread::Start(limit));
  absl::StatusOr<DeviceProof> proof;
  const auto prove = [&] {
    absl::Status status = Contained([&] {
      proof = ProveDevices(options);
      return proof.status();
    });
    if (!status.ok()) proof = std::move(status);
  };
  if (thread->Run(prove)) return proof;
  return DeviceLost("cuda:", absl::StrJoin(options.devices, ","), " has not answered for ",
                    std::chrono::duration<double>(limit).count(),
                    " s in its known-answer test: its driver has not returned from a call. The "
                    "thread of the test is left behind; only another process can use the device "
                    "again");
}

}  // namespace

absl::StatusOr<ProvenKernels> ProveOnce(absl::Span<const int32_t> devices,
                                        const std::string& tuning_dir) {
  Proofs& proofs = TheProofs();
  const MutexLock testing(&proofs.testing);
  Proofs::Asked asked({devices.begin(), devices.end()}, tuning_dir);
  const auto before = proofs.passed.find(asked);
  if (before != proofs.passed.end()) return before->second;
  ProofOptions options;
  options.devices = asked.first;
  options.tuning_dir = tuning_dir;
  ProvenKernels proven;
  absl::StatusOr<DeviceProof> proof = ProveWithin(kStepLimit, options);
  if (IsUnsupported(proof.status())) {
    const std::string first(proof.status().message());
    proven = {
        KernelSet::kSecond,
        absl::StrCat(first, "; it runs the second set of kernels, without the block-scaled MMA")};
    options.kernel_set = KernelSet::kSecond;
    proof = ProveWithin(kStepLimit, options);
    if (proof.ok()) {
      Log(LogLevel::kWarning, proven.reason, ", which takes longer for prompts");
    } else if (IsUnsupported(proof.status())) {
      proof = Unsupported(first, "; nor does the second set of kernels give them");
    }
  }
  {
    const MutexLock lock(&proofs.mutex);
    proofs.refused.erase(asked);
    if (IsUnsupported(proof.status())) {
      proofs.refused[asked] = std::string(proof.status().message());
    }
  }
  DSV4_RETURN_IF_ERROR(proof.status());
  Log(LogLevel::kInfo, "cuda:", absl::StrJoin(devices, ","), " gave the known answers of ",
      proof->flips.size(), " outputs, in ", static_cast<int64_t>(proof->seconds * 1e3), " ms");
  proofs.passed.emplace(std::move(asked), proven);
  return proven;
}

std::string ProofRefusal(int32_t device) {
  Proofs& proofs = TheProofs();
  const MutexLock lock(&proofs.mutex);
  const auto found = proofs.refused.find({{device}, ""});
  return found == proofs.refused.end() ? "" : found->second;
}

absl::StatusOr<std::vector<LaunchRecord>> RecordKnownAnswers() {
  OperatorComparison comparison;
  for (const ProofModel model : kModels) {
    EngineOptions options = OptionsFor(model);
    options.backend = Backend::kReference;
    options.context_tokens = 1024;
    DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                          Engine::OpenRandom(ConfigOf(model), options));
    DSV4_RETURN_IF_ERROR(RunSeen(model, *engine, comparison.baseline(MemoryOf(*engine))));
    DSV4_RETURN_IF_ERROR(comparison.status());
  }
  return comparison.launches();
}

}  // namespace dsv4
