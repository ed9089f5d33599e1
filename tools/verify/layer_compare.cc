// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/layer_compare.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/functional/function_ref.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/proof/operator_compare.h"
#include "tools/verify/expected_tensors.h"

namespace dsv4 {
namespace {

constexpr int64_t kLongestPrompt = 300;

std::vector<float> ReadStreams(ModelRanks& model, int64_t elements) {
  std::vector<std::byte> stored(
      static_cast<size_t>(elements * DTypeBytes(model.activation_dtype())));
  // A failure of the device shows in the step, too.
  model.ReadStreams(absl::MakeSpan(stored)).IgnoreError();
  return ElementsToFloat(stored.data(), model.activation_dtype(), elements);
}

// Published streams are bf16 values: storing them as such loses nothing.
void WriteStreams(const std::vector<float>& streams, ModelRanks& model) {
  std::vector<uint16_t> narrow;
  absl::Span<const std::byte> stored = {reinterpret_cast<const std::byte*>(streams.data()),
                                        streams.size() * sizeof(float)};
  if (model.activation_dtype() == DType::kBF16) {
    narrow.resize(streams.size());
    std::transform(streams.begin(), streams.end(), narrow.begin(), FloatToBf16);
    stored = {reinterpret_cast<const std::byte*>(narrow.data()), narrow.size() * sizeof(uint16_t)};
  }
  model.WriteStreams(stored).IgnoreError();
}

// One prompt in both engines.
class PromptComparison {
 public:
  PromptComparison(const OracleCase& oracle, int64_t length, Engine& baseline, Engine& tested,
                   OperatorComparison* operators)
      : oracle_(oracle),
        tokens_(OraclePrompt(oracle, "prompt", length)),
        following_(OraclePrompt(oracle, "decode", 1)[0]),
        baseline_(baseline),
        tested_(tested),
        operators_(operators),
        sums_(static_cast<size_t>(oracle.model.num_hidden_layers + oracle.stages)) {}

  absl::Status Run(const Interrupted& interrupted) {
    DSV4_ASSIGN_OR_RETURN(KvSequence baseline, KvSequence::Open(&baseline_.cache()));
    DSV4_ASSIGN_OR_RETURN(KvSequence tested, KvSequence::Open(&tested_.cache()));
    const int64_t length = static_cast<int64_t>(tokens_.size());
    const int64_t chunk = baseline_.info().prefill_chunk_tokens;
    for (int64_t begin = 0; begin < length; begin += chunk) {
      const int64_t rows = std::min(chunk, length - begin);
      DSV4_RETURN_IF_ERROR(Begin(baseline_, baseline, begin, rows));
      DSV4_RETURN_IF_ERROR(Begin(tested_, tested, begin, rows));
      DSV4_RETURN_IF_ERROR(baseline_.model().Embed());
      for (int64_t layer = 0; layer < Blocks(); ++layer) {
        if (interrupted()) return Cancelled("interrupted");
        DSV4_RETURN_IF_ERROR(CompareLayer(layer, begin, rows, baseline, tested));
      }
      if (oracle_.HasDspark() && begin + rows == length) {
        DSV4_RETURN_IF_ERROR(CompareDraft(baseline, tested));
      }
      baseline_.batch().Commit();
      tested_.batch().Commit();
    }
    return absl::OkStatus();
  }

  std::vector<LayerDistance> Distances() const {
    std::vector<LayerDistance> distances;
    for (size_t layer = 0; layer < sums_.size(); ++layer) {
      distances.push_back({.prompt = static_cast<int64_t>(tokens_.size()),
                           .layer = static_cast<int64_t>(layer),
                           .distance = sums_[layer].distance()});
    }
    return distances;
  }

 private:
  // Those that run on the prompt's rows.
  int64_t Blocks() const { return oracle_.model.num_hidden_layers + (oracle_.HasMtp() ? 1 : 0); }

  absl::Status Begin(Engine& engine, KvSequence& sequence, int64_t begin, int64_t rows) {
    StepBatch& batch = engine.batch();
    batch.Clear();
    const int64_t slots = oracle_.HasDspark() ? oracle_.dspark.block_size : oracle_.stages;
    DSV4_RETURN_IF_ERROR(
        batch.Add(&sequence, absl::MakeConstSpan(tokens_).subspan(begin, rows), slots));
    return engine.model().Begin(batch.rows(), batch.tokens());
  }

  absl::Status RunLayer(Engine& engine, const KvSequence& sequence, int64_t layer, int64_t begin,
                        int64_t rows) {
    if (layer < oracle_.model.num_hidden_layers) return engine.model().RunLayer(layer);
    const auto next = tokens_.begin() + begin + 1;
    std::vector<int32_t> next_tokens(next, std::min(next + rows, tokens_.end()));
    next_tokens.resize(static_cast<size_t>(rows), following_);
    return ForwardMtpAfter(engine.model(), sequence, begin, next_tokens);
  }

  // Runs a block on the baseline and on the tested engine. Both get the baseline's streams.
  absl::Status CompareRuns(int64_t block, int64_t rows,
                           absl::FunctionRef<absl::Status()> run_baseline,
                           absl::FunctionRef<absl::Status()> run_tested) {
    const int64_t elements = rows * kStreams * oracle_.model.hidden_size;
    const std::vector<float> streams = ReadStreams(baseline_.model(), elements);
    DSV4_RETURN_IF_ERROR(RecordBaseline(run_baseline));
    WriteStreams(streams, tested_.model());
    DSV4_RETURN_IF_ERROR(run_tested());
    sums_[static_cast<size_t>(block)].Add(ReadStreams(tested_.model(), elements),
                                          ReadStreams(baseline_.model(), elements));
    if (operators_ == nullptr) return absl::OkStatus();
    // Once more, with the baseline's inputs for every launch.
    WriteStreams(streams, tested_.model());
    return CompareOperators(run_tested);
  }

  absl::Status RecordBaseline(absl::FunctionRef<absl::Status()> run) {
    if (operators_ != nullptr)
      baseline_.set_recorder(operators_->baseline({&baseline_.device(), baseline_.host_rows()}));
    const absl::Status ran = run();
    baseline_.set_recorder(nullptr);
    return ran;
  }

  // What the baseline recorded, on the tested engine. REQUIRES: operators_.
  absl::Status CompareOperators(absl::FunctionRef<absl::Status()> run) {
    tested_.set_recorder(operators_->tested({&tested_.device(), tested_.host_rows()}));
    const absl::Status ran = run();
    tested_.set_recorder(nullptr);
    DSV4_RETURN_IF_ERROR(ran);
    return operators_->Complete();
  }

  // The same for what leaves no streams to compare.
  absl::Status CompareOperators(absl::FunctionRef<absl::Status()> run_baseline,
                                absl::FunctionRef<absl::Status()> run_tested) {
    DSV4_RETURN_IF_ERROR(RecordBaseline(run_baseline));
    return operators_ == nullptr ? run_tested() : CompareOperators(run_tested);
  }

  absl::Status CompareLayer(int64_t layer, int64_t begin, int64_t rows, const KvSequence& baseline,
                            const KvSequence& tested) {
    DSV4_RETURN_IF_ERROR(CompareRuns(
        layer, rows, [&] { return RunLayer(baseline_, baseline, layer, begin, rows); },
        [&] { return RunLayer(tested_, tested, layer, begin, rows); }));
    if (layer >= oracle_.model.num_hidden_layers) return absl::OkStatus();
    // A drafter's context is made of the baseline's streams on both engines, too.
    WriteStreams(ReadStreams(baseline_.model(), rows * kStreams * oracle_.model.hidden_size),
                 tested_.model());
    return CompareOperators([&] { return baseline_.model().TapLayer(layer); },
                            [&] { return tested_.model().TapLayer(layer); });
  }

  // The stages and heads of a DSpark drafter, in a draft behind the prompt.
  absl::Status CompareDraft(const KvSequence& baseline, const KvSequence& tested) {
    std::vector<int32_t> block(static_cast<size_t>(oracle_.dspark.block_size),
                               static_cast<int32_t>(oracle_.model.dspark.noise_token_id));
    block[0] = following_;
    StepBatch drafts(baseline_.model().limits()), tested_drafts(tested_.model().limits());
    const auto length = static_cast<int64_t>(tokens_.size());
    drafts.AddBlock(baseline, block, length);
    tested_drafts.AddBlock(tested, block, length);
    DSV4_RETURN_IF_ERROR(baseline_.model().BeginDraft(drafts.rows(), drafts.tokens(), {}));
    DSV4_RETURN_IF_ERROR(
        tested_.model().BeginDraft(tested_drafts.rows(), tested_drafts.tokens(), {}));
    for (int64_t stage = 0; stage < oracle_.stages; ++stage) {
      DSV4_RETURN_IF_ERROR(CompareRuns(
          oracle_.model.num_hidden_layers + stage, drafts.row_count(),
          [&] { return baseline_.model().RunDraftBlock(stage); },
          [&] { return tested_.model().RunDraftBlock(stage); }));
    }
    const auto streams = drafts.row_count() * kStreams * oracle_.model.hidden_size;
    WriteStreams(ReadStreams(baseline_.model(), streams), tested_.model());
    return CompareOperators([&] { return RunDraftHeads(baseline_.model()); },
                            [&] { return RunDraftHeads(tested_.model()); });
  }

  // Along forced drafts.
  absl::Status RunDraftHeads(ModelRanks& model) const {
    std::vector<int32_t> rows(static_cast<size_t>(oracle_.dspark.block_size));
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<int32_t> previous = OraclePrompt(oracle_, "draft", oracle_.dspark.block_size);
    previous.insert(previous.begin(), following_);
    previous.pop_back();
    DSV4_RETURN_IF_ERROR(model.DraftLogits(rows).status());
    DSV4_RETURN_IF_ERROR(model.FollowDrafts(rows, previous));
    return model.Synchronize();
  }

  const OracleCase& oracle_;
  const std::vector<int32_t> tokens_;
  const int32_t following_;  // the token after the prompt
  Engine& baseline_;
  Engine& tested_;
  OperatorComparison* const operators_;
  std::vector<RelativeL2> sums_;  // by layer: output streams
};

}  // namespace

std::vector<int64_t> LayerPrompts(const OracleCase& oracle) {
  std::set<int64_t> chosen;
  for (const int64_t length : oracle.prompts) {
    const bool recorded = std::count(oracle.record.begin(), oracle.record.end(), length) != 0;
    if (length == 5 || length == 129 || length == 300 || (recorded && length <= kLongestPrompt)) {
      chosen.insert(length);
    }
  }
  if (chosen.empty() && !oracle.prompts.empty()) {
    chosen.insert(*std::min_element(oracle.prompts.begin(), oracle.prompts.end()));
  }
  return {chosen.begin(), chosen.end()};
}

absl::StatusOr<std::vector<LayerDistance>> CompareLayers(const OracleCase& oracle, Engine& baseline,
                                                         Engine& tested,
                                                         const Interrupted& interrupted,
                                                         OperatorComparison* operators) {
  std::vector<LayerDistance> distances;
  // One flipped code in front of w2 moves a whole row of its outputs by more than a step.
  if (operators != nullptr) {
    DSV4_RETURN_IF_ERROR(baseline.model().SplitExperts());
    DSV4_RETURN_IF_ERROR(tested.model().SplitExperts());
  }
  for (const int64_t length : LayerPrompts(oracle)) {
    PromptComparison comparison(oracle, length, baseline, tested, operators);
    DSV4_RETURN_IF_ERROR(comparison.Run(interrupted));
    const std::vector<LayerDistance> layers = comparison.Distances();
    distances.insert(distances.end(), layers.begin(), layers.end());
  }
  return distances;
}

}  // namespace dsv4
