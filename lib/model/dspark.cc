// SPDX-License-Identifier: Apache-2.0
// The DSpark drafter. Its context rows are made of tapped layers in every forward pass, one for
// each position and stage, in the windows of its own layers. A pass takes a block per sequence: the
// newest token and tokens of noise, whose rows lie at and behind the sequence's end and attend to
// the 128 context rows before them and to all of their own block. Row i of the block drafts token
// i, once the Markov head has added what the token before it says.
#include <algorithm>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"
#include "lib/model/draft_blocks.h"

namespace dsv4 {
namespace {

// dot of f32 and bf16 numbers, in chains of f32 that the compiler makes vectors of
float Dot(const float* a, const uint16_t* b, int64_t count) {
  constexpr int64_t kChains = 16;
  float sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains) {
    for (int64_t l = 0; l < kChains; ++l) sums[l] += a[i + l] * Bf16ToFloat(b[i + l]);
  }
  for (; i < count; ++i) sums[i % kChains] += a[i] * Bf16ToFloat(b[i]);
  for (int64_t half = kChains / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

class DsparkStages final : public DraftBlocks {
 public:
  explicit DsparkStages(const Parts& parts)
      : config_(*parts.config),
        weights_(*parts.weights),
        drafter_(*parts.weights->drafter),
        caches_(parts.layers),
        topk_(static_cast<int32_t>(kWindowTokens + config_.dspark.block_size - 1)),
        embedded_(static_cast<size_t>(config_.dspark.markov_rank)) {}

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
    place(selected_, limits.rows, topk_, DType::kI32);
    return end;
  }

  int64_t slot_shift() const override { return 0; }

  absl::Status AfterLayer(const ForwardContext& c, int64_t layer) override {
    const std::vector<int32_t>& targets = config_.dspark.target_layers;
    const auto tapped = std::find(targets.begin(), targets.end(), layer);
    if (tapped == targets.end()) return absl::OkStatus();
    const int64_t at = (tapped - targets.begin()) * config_.hidden_size * DTypeBytes(act_);
    return c.Run(HcHeadParams{.rows = c.step.rows,
                              .hidden = config_.hidden_size,
                              .streams = c.act.streams,
                              .quantized = taps_ == nullptr ? nullptr : taps_ + at,
                              .quantized_stride = taps() * config_.hidden_size});
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
      LinearFp8Params keys{
          .rows = rows, .k = config_.hidden_size, .x = c.act.quantized, .part_count = 1};
      keys.parts[0] = {.w = attn.wkv, .y = c.act.kv};
      DSV4_RETURN_IF_ERROR(c.Run(keys));
      // One query head is of nobody: the operator wants one at least.
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
    if (!c.planning) SelectRows(c.step);
    return c.Run(EmbedRowsParams{.rows = c.step.rows,
                                 .copies = static_cast<int32_t>(kStreams),
                                 .tokens = c.tokens,
                                 .embed = weights_.embed,
                                 .out = c.act.streams});
  }

  absl::Status RunBlock(const ForwardContext& c, int64_t block) override {
    ForwardContext attending = c;
    // As groups of four positions, so that every position of a window counts as visible.
    attending.attended.step = c.step;
    attending.attended.step.max_position =
        (c.step.max_position + config_.dspark.block_size) * kCsaRatio;
    attending.attended.step.rope.compressed = c.step.rope.window;
    attending.attended.selected = selected_;
    attending.attended.topk = topk_;
    const auto stage = static_cast<size_t>(block);
    return dsv4::RunBlock(attending, config_.num_hidden_layers + block, drafter_.blocks[stage],
                          caches_[stage]);
  }

  absl::Status RunHead(const ForwardContext& c, int32_t rows, const int32_t* row_of,
                       float* part) override {
    return dsv4::RunHead(c, drafter_.hc_head, drafter_.norm, weights_.head, rows, row_of, part,
                         hidden_);
  }

  absl::StatusOr<float> Follow(const ForwardContext& c, int32_t row, int32_t previous) override {
    if (previous < 0 || previous >= config_.vocab_size) {
      return InvalidArgument("a draft after token ", previous, "; the vocabulary has ",
                             config_.vocab_size);
    }
    const int64_t rank = config_.dspark.markov_rank;
    const DsparkWeights& dspark = drafter_.dspark;
    std::transform(dspark.markov_w1.data + previous * rank,
                   dspark.markov_w1.data + (previous + 1) * rank, embedded_.begin(), Bf16ToFloat);
    float* const logits = c.act.logits + row * config_.vocab_size;
    constexpr int64_t kTokens = 1024;  // of a unit
    static_cast<CpuStream*>(c.launch.stream)
        ->ParallelFor(CeilDiv(config_.vocab_size, kTokens), [&](int64_t unit, int) {
          const int64_t end = std::min(config_.vocab_size, (unit + 1) * kTokens);
          for (int64_t token = unit * kTokens; token < end; ++token) {
            logits[token] += Dot(embedded_.data(), dspark.markov_w2.data + token * rank, rank);
          }
        });
    const int64_t dim = config_.hidden_size;
    const uint16_t* const proj = dspark.confidence.data;
    double sum = Dot(embedded_.data(), proj + dim, rank);
    for (int64_t i = 0; i < dim; ++i) sum += double{Bf16ToFloat(proj[i])} * HiddenAt(row * dim + i);
    return static_cast<float>(sum);
  }

  const std::byte* HiddenOf(int32_t row) const override {
    return hidden_ + row * config_.hidden_size * DTypeBytes(act_);
  }

 private:
  int64_t taps() const { return static_cast<int64_t>(config_.dspark.target_layers.size()); }

  float HiddenAt(int64_t index) const {
    return act_ == DType::kBF16 ? Bf16ToFloat(reinterpret_cast<const uint16_t*>(hidden_)[index])
                                : reinterpret_cast<const float*>(hidden_)[index];
  }

  // What each row attends to beside the rows of its block up to itself: those before the block, and
  // the later ones of it.
  void SelectRows(const StepRows& step) {
    for (int32_t i = 0; i < step.sequence_count; ++i) {
      const SequenceRows& sequence = step.sequence(i);
      const int64_t begin = sequence.first_position, end = begin + sequence.rows;
      for (int32_t row = 0; row < sequence.rows; ++row) {
        int32_t* const first = selected_ + int64_t{sequence.first_row + row} * topk_;
        int32_t* to = first;
        for (int64_t p = std::max<int64_t>(0, begin - kWindowTokens); p < begin; ++p) {
          *to++ = static_cast<int32_t>(p);
        }
        for (int64_t p = begin + row + 1; p < end; ++p) *to++ = static_cast<int32_t>(p);
        std::fill(to, first + topk_, -1);
      }
    }
  }

  const ModelConfig& config_;
  const WeightViews& weights_;
  const DrafterWeights& drafter_;
  const absl::Span<const LayerCache> caches_;
  const int32_t topk_;
  std::vector<float> embedded_;  // markov_w1 of the token that drafts follow
  DType act_ = DType::kF32;
  std::byte* taps_ = nullptr;    // [T, taps * D] act: the streams' means, quantised
  std::byte* hidden_ = nullptr;  // [R, D] act: what the head norms
  int32_t* selected_ = nullptr;  // [T, topk]
};

}  // namespace

std::unique_ptr<DraftBlocks> MakeDsparkStages(const DraftBlocks::Parts& parts) {
  return std::make_unique<DsparkStages>(parts);
}

}  // namespace dsv4
