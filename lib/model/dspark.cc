// SPDX-License-Identifier: Apache-2.0
// The DSpark drafter. Its context rows are made of tapped layers in every forward pass, one for
// each position and stage, in the windows of its own layers. A pass takes a block per sequence: the
// newest token and tokens of noise, whose rows lie at and behind the sequence's end and attend to
// the 128 context rows before them and to all of their own block. Row i of the block drafts token
// i, after the Markov head has added the terms of the token before it.
#include <algorithm>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/draft_logits.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"
#include "lib/model/draft_blocks.h"

namespace dsv4 {
namespace {

class DsparkStages final : public DraftBlocks {
 public:
  explicit DsparkStages(const Parts& parts)
      : config_(*parts.config),
        weights_(*parts.weights),
        drafter_(*parts.weights->drafter),
        caches_(parts.layers) {}

  int64_t Place(const StepLimits& limits, DType act, std::byte* memory) override {
    int64_t end = 0;
    const auto place = [&](auto*& pointer, int64_t rows, int64_t width, DType dtype) {
      using T = std::remove_reference_t<decltype(pointer)>;
      if (memory != nullptr) pointer = reinterpret_cast<T>(memory + end);
      end += RoundUp<int64_t>(rows * width * DTypeBytes(dtype), 64);
    };
    act_ = act;
    place(taps_, limits.rows, taps() * config_.hidden_size, act);
    place(hidden_, limits.logit_rows, config_.hidden_size, act);
    return end;
  }

  int64_t slot_shift() const override { return 0; }

  absl::Status AfterLayer(const ForwardContext& c, int64_t layer) override {
    const std::vector<int32_t>& targets = config_.dspark.target_layers;
    const auto tapped = std::find(targets.begin(), targets.end(), layer);
    if (tapped == targets.end()) return absl::OkStatus();
    return c.Run(HcHeadParams{.rows = c.step.rows,
                              .hidden = config_.hidden_size,
                              .streams = c.act.streams,
                              .quantized = taps_,
                              .quantized_width = taps() * config_.hidden_size,
                              .quantized_column = (tapped - targets.begin()) * config_.hidden_size,
                              .quantise = !drafter_.dspark.main_proj.in_blocks()});
  }

  absl::Status AfterLayers(const ForwardContext& c) override {
    const int32_t rows = c.step.rows;
    const DsparkWeights& dspark = drafter_.dspark;
    LinearFp8Params project{
        .rows = rows, .k = taps() * config_.hidden_size, .x = taps_, .part_count = 1};
    project.parts[0] = {.w = dspark.main_proj, .y = c.act.y};
    DSV4_RETURN_IF_ERROR(c.Run(project));
    DSV4_RETURN_IF_ERROR(c.Run(RmsNormParams{.rows = rows,
                                             .dim = config_.hidden_size,
                                             .x = c.act.y,
                                             .weight = dspark.main_norm,
                                             .eps = static_cast<float>(config_.rms_norm_eps),
                                             .normed = c.act.normed,
                                             .quantized = c.act.quantized}));
    c.Show(config_.num_hidden_layers, "main_x", c.act.normed, c.act_dtype(), config_.hidden_size);
    for (size_t stage = 0; stage < drafter_.blocks.size(); ++stage) {
      const AttentionWeights& attn = drafter_.blocks[stage].attn;
      LinearFp8Params keys{.rows = rows,
                           .k = config_.hidden_size,
                           .x = attn.wkv.in_blocks() ? c.act.normed : c.act.quantized,
                           .part_count = 1};
      keys.parts[0] = {.w = attn.wkv, .y = c.act.kv};
      DSV4_RETURN_IF_ERROR(c.Run(keys));
      // The operator needs at least one query head; the output of this one is never read.
      DSV4_RETURN_IF_ERROR(c.Run(QkvPrepareParams{.step = &c.step,
                                                  .heads = 1,
                                                  .q = c.act.q,
                                                  .kv = c.act.kv,
                                                  .kv_norm = attn.kv_norm,
                                                  .eps = static_cast<float>(config_.rms_norm_eps),
                                                  .window = caches_[stage].window}));
    }
    return absl::OkStatus();
  }

  int64_t blocks() const override { return static_cast<int64_t>(drafter_.blocks.size()); }

  absl::Status Begin(const ForwardContext& c) override {
    return c.Run(EmbedRowsParams{.rows = c.step.rows,
                                 .copies = static_cast<int32_t>(kStreams),
                                 .tokens = c.tokens,
                                 .embed = weights_.embed,
                                 .out = c.act.streams});
  }

  absl::Status RunBlock(const ForwardContext& c, int64_t block) override {
    ForwardContext attending = c;
    attending.block_rows = static_cast<int32_t>(config_.dspark.block_size);
    const auto stage = static_cast<size_t>(block);
    return dsv4::RunBlock(attending, config_.num_hidden_layers + block, drafter_.blocks[stage],
                          caches_[stage]);
  }

  absl::Status RunHead(const ForwardContext& c, int32_t rows, const int32_t* row_of,
                       float* part) override {
    return dsv4::RunHead(c, drafter_.hc_head, drafter_.norm, weights_.head, rows, row_of, part,
                         hidden_);
  }

  bool follows() const override { return true; }
  absl::Status Follow(const ForwardContext& c, int32_t rows, const int32_t* row_of,
                      const int32_t* tokens, float* confidences) override {
    const DsparkWeights& dspark = drafter_.dspark;
    return c.Run(DraftLogitsParams{.rows = rows,
                                   .vocab = config_.vocab_size,
                                   .hidden = config_.hidden_size,
                                   .rank = config_.dspark.markov_rank,
                                   .row_of = row_of,
                                   .tokens = tokens,
                                   .chosen = c.chosen,
                                   .embed = dspark.markov_w1.data,
                                   .weight = dspark.markov_w2.data,
                                   .confidence = dspark.confidence.data,
                                   .states = hidden_,
                                   .logits = c.act.logits,
                                   .confidences = confidences});
  }

  const std::byte* HiddenOf(int32_t row) const override {
    return hidden_ + row * config_.hidden_size * DTypeBytes(act_);
  }

 private:
  int64_t taps() const { return static_cast<int64_t>(config_.dspark.target_layers.size()); }

  const ModelConfig& config_;
  const WeightViews& weights_;
  const DrafterWeights& drafter_;
  const absl::Span<const LayerCache> caches_;
  DType act_ = DType::kF32;
  std::byte* taps_ = nullptr;    // [T, taps * D] act: the streams' means, quantised
  std::byte* hidden_ = nullptr;  // [R, D] act: the input of the head's norm
};

}  // namespace

std::unique_ptr<DraftBlocks> MakeDsparkStages(const DraftBlocks::Parts& parts) {
  return std::make_unique<DsparkStages>(parts);
}

}  // namespace dsv4
