// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/oracle_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/sampling/params.h"

namespace dsv4 {
namespace {

constexpr int32_t kChunkTokens = 256;
constexpr int64_t kLogitRows = 8;  // last positions of a prompt whose logits are recorded
// Decode steps whose layers are recorded.
constexpr int64_t kRecordedSteps[] = {0, 3};

struct Prompt {
  std::string name;  // "p5"
  std::vector<int32_t> tokens;
  bool recorded = false;
  KvSequence sequence;
  std::vector<float> main_x{};  // [n, D] of a DSpark drafter: the last n positions', 8 at most
};

// Rows of a running pass that are recorded together.
struct RecordedRows {
  int64_t first = 0, rows = 1;
  std::string prefix;  // of the tensors' names
};

class CaseRun {
 public:
  CaseRun(const OracleCase& oracle, Engine& engine)
      : oracle_(oracle),
        engine_(engine),
        // One at least: it is the next token of a prompt's last position.
        forced_(OraclePrompt(oracle, "decode", std::max<int64_t>(oracle.decode, 1))),
        tap_([this](int64_t layer, absl::string_view what, const void* data, DType dtype,
                    int64_t rows,
                    int64_t width) { Record(layer, what, data, dtype, rows, width); }) {}
  ~CaseRun() { engine_.model().set_tap(nullptr); }

  absl::StatusOr<OracleTensors> Run(const Interrupted& interrupted) {
    for (const int64_t length : std::set<int64_t>(oracle_.prompts.begin(), oracle_.prompts.end())) {
      DSV4_ASSIGN_OR_RETURN(KvSequence sequence, KvSequence::Open(&engine_.cache()));
      const bool recorded = std::count(oracle_.record.begin(), oracle_.record.end(), length) != 0;
      prompts_.push_back({absl::StrCat("p", length), OraclePrompt(oracle_, "prompt", length),
                          recorded, std::move(sequence)});
    }
    for (Prompt& prompt : prompts_) {
      const int64_t length = static_cast<int64_t>(prompt.tokens.size());
      for (int64_t begin = 0; begin < length; begin += kChunkTokens) {
        if (interrupted()) return Cancelled("interrupted");
        DSV4_RETURN_IF_ERROR(
            PrefillChunk(prompt, begin, std::min<int64_t>(length, begin + kChunkTokens)));
      }
    }
    for (int64_t step = 0; step < oracle_.decode; ++step) {
      if (interrupted()) return Cancelled("interrupted");
      DSV4_RETURN_IF_ERROR(DecodeStep(step));
    }
    return std::move(tensors_);
  }

 private:
  absl::Status PrefillChunk(Prompt& prompt, int64_t begin, int64_t end) {
    const int64_t length = static_cast<int64_t>(prompt.tokens.size());
    const int64_t rows = end - begin;
    ModelRanks& model = engine_.model();
    StepBatch& batch = engine_.batch();
    batch.Clear();
    const bool mtp = oracle_.HasMtp();
    DSV4_RETURN_IF_ERROR(batch.Add(
        &prompt.sequence, absl::MakeConstSpan(prompt.tokens).subspan(begin, rows), DraftSlots()));
    recorded_rows_.clear();
    if (prompt.recorded && end == length) {
      recorded_rows_.push_back({.first = rows - 1, .prefix = prompt.name + ".prefill"});
    }
    in_step_ = {&prompt};
    DSV4_RETURN_IF_ERROR(Forward());

    std::vector<int32_t> logit_rows;
    for (int64_t p = std::max(begin, length - kLogitRows); p < end; ++p) {
      logit_rows.push_back(static_cast<int32_t>(p - begin));
    }
    if (!logit_rows.empty()) {
      DSV4_ASSIGN_OR_RETURN(const float* logits, model.Logits(logit_rows));
      Append(prompt.name + ".prefill.logits", logits, logit_rows.size());
      if (end == length) {
        const int64_t vocab = engine_.config().vocab_size;
        const int64_t last = static_cast<int64_t>(logit_rows.size()) - 1;
        Append(prompt.name + ".decode.logits", logits + last * vocab, 1);
      }
    }
    if (mtp) {
      std::vector<int32_t> next(prompt.tokens.begin() + begin + 1,
                                prompt.tokens.begin() + std::min(end + 1, length));
      if (end == length) next.push_back(forced_[0]);
      DSV4_RETURN_IF_ERROR(ForwardMtpAfter(model, prompt.sequence, begin, next));
      if (!logit_rows.empty()) {
        DSV4_ASSIGN_OR_RETURN(const float* logits, model.DraftLogits(logit_rows));
        Append(prompt.name + ".prefill.mtp_logits", logits, logit_rows.size());
      }
    }
    if (end == length) DSV4_RETURN_IF_ERROR(Draft(0));
    batch.Commit();
    return absl::OkStatus();
  }

  // The next forced token of every prompt.
  absl::Status DecodeStep(int64_t step) {
    StepBatch& batch = engine_.batch();
    batch.Clear();
    recorded_rows_.clear();
    const bool recorded = std::count(std::begin(kRecordedSteps), std::end(kRecordedSteps), step);
    in_step_.clear();
    std::vector<int32_t> rows;
    for (Prompt& prompt : prompts_) {
      const auto row = static_cast<int32_t>(rows.size());
      DSV4_RETURN_IF_ERROR(batch.Add(&prompt.sequence,
                                     absl::MakeConstSpan(&forced_[static_cast<size_t>(step)], 1),
                                     oracle_.HasDspark() ? DraftSlots() : 0));
      if (prompt.recorded && recorded) {
        recorded_rows_.push_back(
            {.first = row, .prefix = absl::StrCat(prompt.name, ".decode", step)});
      }
      in_step_.push_back(&prompt);
      rows.push_back(row);
    }
    DSV4_RETURN_IF_ERROR(Forward());
    DSV4_ASSIGN_OR_RETURN(const float* logits, engine_.model().Logits(rows));
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const int64_t vocab = engine_.config().vocab_size;
      Append(prompts_[i].name + ".decode.logits", logits + static_cast<int64_t>(i) * vocab, 1);
    }
    DSV4_RETURN_IF_ERROR(Draft(step + 1));
    batch.Commit();
    return absl::OkStatus();
  }

  int32_t DraftSlots() const {
    return static_cast<int32_t>(oracle_.HasDspark() ? oracle_.dspark.block_size : oracle_.stages);
  }

  // The main layers on the batch, of the prompts of in_step_.
  absl::Status Forward() {
    ModelRanks& model = engine_.model();
    model.set_tap(recorded_rows_.empty() && !oracle_.HasDspark() ? nullptr : &tap_);
    const absl::Status status = model.Forward(engine_.batch().rows(), engine_.batch().tokens());
    model.set_tap(nullptr);
    return status;
  }

  // Drafts of the prompts of in_step_ after `after` forced tokens, whose rows are computed and not
  // yet committed.
  absl::Status Draft(int64_t after) {
    if (std::count(oracle_.draft_after.begin(), oracle_.draft_after.end(), after) == 0) {
      return absl::OkStatus();
    }
    ModelRanks& model = engine_.model();
    const int64_t block = oracle_.dspark.block_size, vocab = engine_.config().vocab_size;
    const int32_t anchor = forced_[static_cast<size_t>(after)];
    std::vector<int32_t> tokens(static_cast<size_t>(block),
                                static_cast<int32_t>(engine_.config().dspark.noise_token_id));
    tokens[0] = anchor;
    StepBatch drafts(model.limits());
    recorded_rows_.clear();
    std::vector<int32_t> rows;
    for (const Prompt* prompt : in_step_) {
      const int64_t length = static_cast<int64_t>(prompt->tokens.size()) + after;
      recorded_rows_.push_back({.first = drafts.row_count(),
                                .rows = block,
                                .prefix = absl::StrCat(prompt->name, ".draft", after)});
      RecordContext(*prompt, recorded_rows_.back().prefix, length);
      drafts.AddBlock(prompt->sequence, tokens, length);
    }
    for (int32_t row = 0; row < drafts.row_count(); ++row) rows.push_back(row);
    model.set_tap(&tap_);
    const absl::Status status = model.ForwardDraft(drafts.rows(), drafts.tokens(), {});
    model.set_tap(nullptr);
    DSV4_RETURN_IF_ERROR(status);
    DSV4_ASSIGN_OR_RETURN(const float* logits, model.DraftLogits(rows));
    for (const RecordedRows& recorded : recorded_rows_) {
      const int64_t hidden = engine_.config().hidden_size;
      std::vector<std::byte> bytes(
          static_cast<size_t>(block * hidden * DTypeBytes(model.activation_dtype())));
      DSV4_RETURN_IF_ERROR(
          model.ReadDraftHidden(static_cast<int32_t>(recorded.first), absl::MakeSpan(bytes)));
      tensors_[recorded.prefix + ".hidden"] =
          ElementsToFloat(bytes.data(), model.activation_dtype(), block * hidden);
      Append(recorded.prefix + ".base_logits", logits + recorded.first * vocab,
             static_cast<size_t>(block));
    }
    // Along forced drafts, then along the drafter's own.
    const std::vector<int32_t> forced = OraclePrompt(oracle_, "draft", block);
    for (const RecordedRows& recorded : recorded_rows_) {
      std::vector<float>& confidence = tensors_[recorded.prefix + ".confidence"];
      int32_t previous = anchor;
      for (int64_t i = 0; i < block; ++i) {
        const auto row = static_cast<int32_t>(recorded.first + i);
        DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> of_row,
                              Follow(row, previous, &confidence));
        Append(recorded.prefix + ".markov_logits", of_row.data(), 1);
        previous = forced[static_cast<size_t>(i)];
      }
    }
    DSV4_RETURN_IF_ERROR(model.DraftLogits(rows).status());
    for (const RecordedRows& recorded : recorded_rows_) {
      std::vector<float>& chain = tensors_[recorded.prefix + ".chain"];
      std::vector<float>& confidence = tensors_[recorded.prefix + ".chain_confidence"];
      int32_t previous = anchor;
      for (int64_t i = 0; i < block; ++i) {
        const auto row = static_cast<int32_t>(recorded.first + i);
        DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> of_row,
                              Follow(row, previous, &confidence));
        previous =
            static_cast<int32_t>(std::max_element(of_row.begin(), of_row.end()) - of_row.begin());
        chain.push_back(static_cast<float>(previous));
      }
    }
    return absl::OkStatus();
  }

  // The logits of row `row` of the last draft after token `previous`; adds how sure the drafter is
  // there.
  absl::StatusOr<absl::Span<const float>> Follow(int32_t row, int32_t previous,
                                                 std::vector<float>* confidence) {
    ModelRanks& model = engine_.model();
    DSV4_RETURN_IF_ERROR(
        model.FollowDrafts(absl::MakeConstSpan(&row, 1), absl::MakeConstSpan(&previous, 1)));
    DSV4_RETURN_IF_ERROR(model.Synchronize());
    confidence->push_back(model.Confidence(row));
    return model.logits().Row(row);
  }

  // What a draft behind `length` positions sees: main_x of the last ones, and the context rows that
  // were made of it, where those are kept in f32.
  void RecordContext(const Prompt& prompt, const std::string& prefix, int64_t length) {
    const int64_t hidden = engine_.config().hidden_size;
    const int64_t positions = length <= kLogitRows ? length : 2;
    tensors_[prefix + ".main_x"].assign(prompt.main_x.end() - positions * hidden,
                                        prompt.main_x.end());
    const absl::Span<const LayerCache> layers = engine_.cache().layers();
    const int32_t* const blocks = prompt.sequence.BlockRows(0, 1, length).window_blocks;
    std::vector<float> context;
    for (int64_t stage = 0; stage < oracle_.stages; ++stage) {
      const RowPool& pool =
          layers[static_cast<size_t>(oracle_.model.num_hidden_layers + stage)].window;
      if (pool.format != RowFormat::kF32) return;
      for (int64_t p = length - positions; p < length; ++p) {
        const auto* row = reinterpret_cast<const float*>(
            pool.Row(blocks[p / kWindowBlockTokens], p % kWindowBlockTokens));
        context.insert(context.end(), row, row + kKvRowElements);
      }
    }
    tensors_[prefix + ".context"] = std::move(context);
  }

  void Record(int64_t layer, absl::string_view what, const void* data, DType dtype, int64_t rows,
              int64_t width) {
    const auto tensor = [&](int64_t first, int64_t count) {
      return ElementsToFloat(
          static_cast<const std::byte*>(data) + first * width * DTypeBytes(dtype), dtype,
          count * width);
    };
    if (what == "main_x") {
      int64_t first = 0;
      for (Prompt* prompt : in_step_) {
        const int64_t count = in_step_.size() == 1 ? rows : 1;
        const std::vector<float> values = tensor(first, count);
        std::vector<float>& kept = prompt->main_x;
        kept.insert(kept.end(), values.begin(), values.end());
        const auto most = static_cast<size_t>(kLogitRows * width);
        if (kept.size() > most) {
          kept.erase(kept.begin(), kept.end() - static_cast<ptrdiff_t>(most));
        }
        first += count;
      }
      return;
    }
    const int64_t stage = layer - oracle_.model.num_hidden_layers;
    const std::string block =
        stage < 0 ? absl::StrCat(".layer", layer, ".") : absl::StrCat(".stage", stage, ".");
    for (const RecordedRows& recorded : recorded_rows_) {
      tensors_[absl::StrCat(recorded.prefix, block, what)] = tensor(recorded.first, recorded.rows);
    }
  }

  void Append(const std::string& name, const float* logits, size_t rows) {
    std::vector<float>& tensor = tensors_[name];
    tensor.insert(tensor.end(), logits, logits + rows * engine_.config().vocab_size);
  }

  const OracleCase& oracle_;
  Engine& engine_;
  const std::vector<int32_t> forced_;
  const Tap tap_;
  std::vector<Prompt> prompts_;
  std::vector<RecordedRows> recorded_rows_;  // of the running pass
  std::vector<Prompt*> in_step_;             // whose rows it has: all of one, or one of each
  OracleTensors tensors_;
};

}  // namespace

EngineOptions OracleEngineOptions(const OracleCase& oracle, Backend backend, Numerics numerics) {
  EngineOptions options;
  options.backend = backend;
  options.numerics = numerics;
  options.max_sessions = static_cast<int32_t>(oracle.prompts.size());
  options.prefill_chunk_tokens = kChunkTokens;
  options.logit_rows = std::max<int32_t>(options.max_sessions, kLogitRows);
  options.drafts = oracle.stages > 0;
  options.max_draft_tokens =
      static_cast<int32_t>(std::min<int64_t>(oracle.dspark.block_size, kMaxDraftTokens));
  // The MTP block sees the token that follows a prompt, and a block of drafts the places behind it.
  const int64_t following = std::max<int64_t>(oracle.decode, 1) + oracle.dspark.block_size;
  for (const int64_t length : oracle.prompts) {
    options.context_tokens = std::max(options.context_tokens, length + following);
    options.cache_tokens += length + following;
  }
  return options;
}

absl::Status ForwardMtpAfter(ModelRanks& model, const KvSequence& sequence, int64_t first_position,
                             absl::Span<const int32_t> next_tokens) {
  StepBatch batch(model.limits());
  batch.AddMtp(sequence, next_tokens, first_position + 1);
  std::vector<StreamSource> sources;
  for (size_t row = 0; row < next_tokens.size(); ++row) {
    sources.push_back(StreamSource::OfRow(static_cast<int32_t>(row)));
  }
  return model.ForwardDraft(batch.rows(), batch.tokens(), sources);
}

absl::StatusOr<OracleTensors> RunOracleCase(const OracleCase& oracle, Engine& engine,
                                            const Interrupted& interrupted) {
  return CaseRun(oracle, engine).Run(interrupted);
}

std::vector<float> ElementsToFloat(const void* data, DType dtype, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::kBF16:
        values[i] = Bf16ToFloat(static_cast<const uint16_t*>(data)[i]);
        break;
      case DType::kI32:
        values[i] = static_cast<float>(static_cast<const int32_t*>(data)[i]);
        break;
      default:
        values[i] = static_cast<const float*>(data)[i];
    }
  }
  return values;
}

}  // namespace dsv4
