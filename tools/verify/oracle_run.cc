// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/oracle_run.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

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
};

class CaseRun {
 public:
  CaseRun(const OracleCase& oracle, Engine& engine)
      : oracle_(oracle),
        engine_(engine),
        // One at least: it is the next token of a prompt's last position.
        forced_(OraclePrompt(oracle, "decode", std::max<int64_t>(oracle.decode, 1))),
        tap_([this](int64_t layer, absl::string_view what, const void* data, DType dtype,
                    int64_t /*rows*/, int64_t width) { Record(layer, what, data, dtype, width); }) {
  }
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
        &prompt.sequence, absl::MakeConstSpan(prompt.tokens).subspan(begin, rows), mtp ? 1 : 0));
    recorded_rows_.clear();
    if (prompt.recorded && end == length) {
      recorded_rows_.push_back({rows - 1, prompt.name + ".prefill"});
    }
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
        DSV4_ASSIGN_OR_RETURN(const float* logits, model.MtpLogits(logit_rows));
        Append(prompt.name + ".prefill.mtp_logits", logits, logit_rows.size());
      }
    }
    batch.Commit();
    return absl::OkStatus();
  }

  // The next forced token of every prompt.
  absl::Status DecodeStep(int64_t step) {
    StepBatch& batch = engine_.batch();
    batch.Clear();
    recorded_rows_.clear();
    const bool recorded = std::count(std::begin(kRecordedSteps), std::end(kRecordedSteps), step);
    std::vector<int32_t> rows;
    for (Prompt& prompt : prompts_) {
      const auto row = static_cast<int32_t>(rows.size());
      DSV4_RETURN_IF_ERROR(
          batch.Add(&prompt.sequence, absl::MakeConstSpan(&forced_[static_cast<size_t>(step)], 1)));
      if (prompt.recorded && recorded) {
        recorded_rows_.push_back({row, absl::StrCat(prompt.name, ".decode", step)});
      }
      rows.push_back(row);
    }
    DSV4_RETURN_IF_ERROR(Forward());
    DSV4_ASSIGN_OR_RETURN(const float* logits, engine_.model().Logits(rows));
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const int64_t vocab = engine_.config().vocab_size;
      Append(prompts_[i].name + ".decode.logits", logits + static_cast<int64_t>(i) * vocab, 1);
    }
    batch.Commit();
    return absl::OkStatus();
  }

  // The main layers on the batch; only they are recorded.
  absl::Status Forward() {
    ModelRanks& model = engine_.model();
    model.set_tap(recorded_rows_.empty() ? nullptr : &tap_);
    const absl::Status status = model.Forward(engine_.batch().rows(), engine_.batch().tokens());
    model.set_tap(nullptr);
    return status;
  }

  void Record(int64_t layer, absl::string_view what, const void* data, DType dtype, int64_t width) {
    for (const auto& [row, prefix] : recorded_rows_) {
      const auto* bytes = static_cast<const std::byte*>(data) + row * width * DTypeBytes(dtype);
      tensors_[absl::StrCat(prefix, ".layer", layer, ".", what)] =
          WidenElements(bytes, dtype, width);
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
  std::vector<std::pair<int64_t, std::string>> recorded_rows_;  // of the running step: row, prefix
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
  options.mtp = oracle.HasMtp();
  // The MTP block sees the token that follows a prompt.
  const int64_t following = std::max<int64_t>(oracle.decode, 1);
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
  return model.ForwardMtp(batch.rows(), batch.tokens(), sources);
}

absl::StatusOr<OracleTensors> RunOracleCase(const OracleCase& oracle, Engine& engine,
                                            const Interrupted& interrupted) {
  return CaseRun(oracle, engine).Run(interrupted);
}

std::vector<float> WidenElements(const void* data, DType dtype, int64_t count) {
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
