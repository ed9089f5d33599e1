// SPDX-License-Identifier: Apache-2.0
// The MTP block (model.md 4.7). Its row in slot s >= 1 is made of token s and the streams X of
// token s - 1, has the RoPE position s - 1, and drafts token s + 1.
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"
#include "lib/model/draft_blocks.h"

namespace dsv4 {
namespace {

class MtpBlock final : public DraftBlocks {
 public:
  explicit MtpBlock(const Parts& parts)
      : config_(*parts.config),
        weights_(*parts.weights),
        drafter_(*parts.weights->drafter),
        cache_(parts.layers[0]),
        shards_(*parts.shards),
        rank_(parts.rank) {}

  int64_t Place(const StepLimits& limits, DType act, std::byte* memory) override {
    const int64_t t = limits.rows, d = config_.hidden_size;
    int64_t end = 0;
    const auto place = [&](std::byte*& pointer, int64_t width) {
      if (memory != nullptr) pointer = memory + end;
      end += RoundUp<int64_t>(t * width * DTypeBytes(act), 64);
    };
    place(sources_, kStreams * d);
    place(e_, d);
    place(quantized_, kStreams * d);
    if (shards_.ranks > 1) place(part_, kStreams * shards_.hidden[rank_].size());
    return end;
  }

  int64_t slot_shift() const override { return 1; }
  std::byte* sources() const override { return sources_; }

  int64_t blocks() const override { return 1; }

  absl::Status Begin(const ForwardContext& c) override {
    const int32_t rows = c.step.rows;
    DSV4_RETURN_IF_ERROR(c.Run(EmbedRowsParams{.rows = rows,
                                               .copies = 1,
                                               .tokens = c.tokens,
                                               .embed = weights_.embed,
                                               .out = e_,
                                               .chosen = c.chosen}));
    const MtpWeights& mtp = drafter_.mtp;
    // In this order: y's part may have been exchanged just before.
    DSV4_RETURN_IF_ERROR(NormAndProject(c, rows * static_cast<int32_t>(kStreams), sources_,
                                        mtp.hnorm, mtp.h_proj, part_, c.act.streams));
    DSV4_RETURN_IF_ERROR(NormAndProject(c, rows, e_, mtp.enorm, mtp.e_proj, c.act.y_part, e_));
    return c.Run(MtpCombineParams{.rows = rows,
                                  .hidden = config_.hidden_size,
                                  .e = e_,
                                  .h = c.act.streams,
                                  .streams = c.act.streams});
  }

  absl::Status RunBlock(const ForwardContext& c, int64_t block) override {
    return dsv4::RunBlock(c, config_.num_hidden_layers + block, drafter_.blocks[0], cache_);
  }

  absl::Status RunHead(const ForwardContext& c, int32_t rows, const int32_t* row_of,
                       float* part) override {
    return dsv4::RunHead(c, drafter_.hc_head, drafter_.norm, weights_.head, rows, row_of, part);
  }

 private:
  // out = w . act_quant(RMSNorm(x; norm)) of `rows` rows of D elements; a rank's own part of it in
  // `part`.
  absl::Status NormAndProject(const ForwardContext& c, int32_t rows, const void* x,
                              const uint16_t* norm, const Fp8Weight& w, void* part, void* out) {
    const int64_t hidden = config_.hidden_size;
    DSV4_RETURN_IF_ERROR(c.Run(RmsNormParams{.rows = rows,
                                             .dim = hidden,
                                             .x = x,
                                             .weight = norm,
                                             .eps = static_cast<float>(config_.rms_norm_eps),
                                             .normed = w.in_blocks() ? quantized_ : nullptr,
                                             .quantized = w.in_blocks() ? nullptr : quantized_}));
    LinearFp8Params project{.rows = rows, .k = hidden, .x = quantized_, .part_count = 1};
    project.parts[0] = {.w = w, .y = c.alone() ? out : part};
    const Slices& slices = c.shards->hidden;
    if (!c.own(slices).empty()) DSV4_RETURN_IF_ERROR(c.Run(project));
    return c.Gather(rows, slices, DTypeBytes(c.act_dtype()), part, out);
  }

  const ModelConfig& config_;
  const WeightViews& weights_;
  const DrafterWeights& drafter_;
  const LayerCache& cache_;
  const Shards& shards_;
  const int rank_;
  std::byte* sources_ = nullptr;    // [T, 4, D] act: streams that a pass starts from
  std::byte* e_ = nullptr;          // [T, D] act: embedding, then e_proj's output
  std::byte* quantized_ = nullptr;  // [T, 4, D] act: normed streams or embedding, quantised
  std::byte* part_ = nullptr;       // [T, 4, own D] act: h_proj's output; with several ranks only
};

}  // namespace

std::unique_ptr<DraftBlocks> MakeMtpBlock(const DraftBlocks::Parts& parts) {
  return std::make_unique<MtpBlock>(parts);
}

}  // namespace dsv4
