// SPDX-License-Identifier: Apache-2.0
// The mixture-of-experts sub-layer (model.md 4.5).
#include "kernels/op/moe.h"

#include "absl/functional/function_ref.h"
#include "lib/base/status_macros.h"
#include "lib/model/block.h"

namespace dsv4 {
namespace {

// Runs a rank's part of the experts, by one call of the operator or by several.
using RunPart = absl::FunctionRef<absl::Status(const ExpertFfnParams& ffn)>;

// The first half of the experts, with the rank's rows of their matrices.
absl::Status RunProducts(const ForwardContext& c, ExpertFfnParams ffn, RunPart run) {
  const Slices& inter = c.shards->inter;
  const int64_t pairs = int64_t{ffn.rows} * (ffn.experts_per_token + 1);
  ffn.part = ExpertPart::kProducts;
  ffn.products = c.act.products_part;
  ffn.inter = c.own(inter).size();
  if (!c.own(inter).empty()) DSV4_RETURN_IF_ERROR(run(ffn));
  return c.Gather(pairs, inter, DTypeBytes(c.act_dtype()), c.act.products_part, c.act.products);
}

// The second half, or the sum of the outputs of waves.
absl::Status RunOutputs(const ForwardContext& c, ExpertFfnParams ffn, RunPart run) {
  ffn.part = ExpertPart::kOutputs;
  ffn.products = c.act.products;
  ffn.hidden = c.own(c.shards->hidden).size();
  ffn.y = c.act.y_part;
  return c.own(c.shards->hidden).empty() ? absl::OkStatus() : run(ffn);
}

absl::Status GatherOutputs(const ForwardContext& c) {
  return c.Gather(c.step.rows, c.shards->hidden, DTypeBytes(c.act_dtype()), c.act.y_part, c.act.y);
}

absl::Status RunExperts(const ForwardContext& c, const ExpertFfnParams& ffn) {
  const auto run = [&](const ExpertFfnParams& part) { return c.Run(part); };
  if (c.alone() && c.act.products == nullptr) return run(ffn);
  DSV4_RETURN_IF_ERROR(RunProducts(c, ffn, run));
  DSV4_RETURN_IF_ERROR(RunOutputs(c, ffn, run));
  return GatherOutputs(c);
}

// Runs a wave and, if it is the last one, the sum.
absl::Status RunWave(const ForwardContext& c, const ExpertFfnParams& wave, bool last, RunPart run) {
  ExpertFfnParams sum = wave;
  sum.wave = ExpertWave::kSum;
  sum.experts = c.act.experts;
  const auto at_once = [&](const ExpertFfnParams& part) { return c.Run(part); };
  if (c.alone()) {
    DSV4_RETURN_IF_ERROR(run(wave));
    return last ? c.Run(sum) : absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(RunProducts(c, wave, run));
  DSV4_RETURN_IF_ERROR(RunOutputs(c, wave, run));
  if (last) DSV4_RETURN_IF_ERROR(RunOutputs(c, sum, at_once));
  // Also before further waves: no two consecutive exchanges may be of the products.
  return GatherOutputs(c);
}

absl::Status RunWave(const ForwardContext& c, const ExpertFfnParams& wave, bool last) {
  return RunWave(c, wave, last, [&](const ExpertFfnParams& part) { return c.Run(part); });
}

// The same, split into waves whose experts are first copied from host memory to the device.
absl::Status RunStreamedWaves(const ForwardContext& c, const MoeWeights& w,
                              const ExpertFfnParams& wave, bool last) {
  return RunWave(c, wave, last, [&](ExpertFfnParams part) -> absl::Status {
    ExpertStreamer& streamer = *c.streamer;
    part.experts_table = streamer.table();
    DSV4_RETURN_IF_ERROR(streamer.Begin(w.block, part.part));
    while (streamer.more()) {
      DSV4_ASSIGN_OR_RETURN(const ExpertStreamer::Wave experts, streamer.Next());
      part.first_expert = experts.first;
      part.end_expert = experts.end;
      DSV4_RETURN_IF_ERROR(c.Run(part));
      DSV4_RETURN_IF_ERROR(streamer.Done());
      part.wave = ExpertWave::kNext;
    }
    return absl::OkStatus();
  });
}

ExpertFfnParams FirstWave(const ForwardContext& c, const ExpertFfnParams& ffn) {
  ExpertFfnParams wave = ffn;
  wave.wave = ExpertWave::kFirst;
  wave.outputs = c.act.expert_outputs;
  return wave;
}

// Makes every launch that waves can need.
absl::Status LaunchAll(const ForwardContext& c, const ExpertFfnParams& ffn) {
  ExpertFfnParams wave = FirstWave(c, ffn);
  DSV4_RETURN_IF_ERROR(RunExperts(c, ffn));
  DSV4_RETURN_IF_ERROR(RunWave(c, wave, false));
  wave.wave = ExpertWave::kNext;
  return RunWave(c, wave, true);
}

// For experts on disk or of the CPU. `streams`: the others, if in host memory, are copied to the
// device first.
absl::Status RunCut(const ForwardContext& c, const MoeWeights& w, const ExpertFfnParams& ffn,
                    bool streams) {
  ExpertFfnParams wave = FirstWave(c, ffn);
  wave.experts = c.act.wave_experts;
  CpuShare* const share = c.share;
  ExpertFetcher* const fetcher = c.fetcher;
  const int64_t pairs = int64_t{ffn.rows} * ffn.experts_per_token;
  // What follows waits for the device.
  if (c.communicator != nullptr) DSV4_RETURN_IF_ERROR(c.communicator->Synchronize());
  bool shares = false, all = true;
  if (share != nullptr) {
    DSV4_ASSIGN_OR_RETURN(shares, share->Begin(w.block, ffn));
  }
  if (fetcher != nullptr && share != nullptr) {
    all = fetcher->Begin(w.block, share->own());
  } else if (fetcher != nullptr) {
    DSV4_ASSIGN_OR_RETURN(all, fetcher->Begin(w.block, c.act.experts, pairs));
  }
  if (all && !shares)
    return streams ? RunStreamedWaves(c, w, FirstWave(c, ffn), true) : RunExperts(c, ffn);
  const auto choose = [&](absl::Span<const int32_t> experts) {
    return c.device->Upload(reinterpret_cast<std::byte*>(c.act.wave_experts),
                            reinterpret_cast<const std::byte*>(experts.data()),
                            pairs * static_cast<int64_t>(sizeof(int32_t)));
  };
  DSV4_RETURN_IF_ERROR(
      choose(fetcher != nullptr ? absl::MakeConstSpan(fetcher->wave()) : share->own()));
  DSV4_RETURN_IF_ERROR(streams ? RunStreamedWaves(c, w, wave, false) : RunWave(c, wave, false));
  wave.wave = ExpertWave::kNext;
  const auto run_others = [&]() -> absl::Status {
    while (fetcher->more()) {
      DSV4_RETURN_IF_ERROR(fetcher->Next());
      DSV4_RETURN_IF_ERROR(choose(fetcher->wave()));
      DSV4_RETURN_IF_ERROR(RunWave(c, wave, !shares && !fetcher->more()));
    }
    return absl::OkStatus();
  };
  if (!shares) return run_others();
  DSV4_RETURN_IF_ERROR(all ? share->Compute(c.act.expert_outputs)
                           : share->Compute(c.act.expert_outputs, run_others));
  wave.wave = ExpertWave::kSum;
  wave.experts = c.act.experts;
  return c.Run(wave);
}

}  // namespace

absl::Status RunMoe(const ForwardContext& c, int64_t layer, const MoeWeights& w) {
  const ModelConfig& config = *c.config;
  const int32_t k = static_cast<int32_t>(config.num_experts_per_tok);
  DSV4_RETURN_IF_ERROR(
      c.Run(MoeGateParams{.rows = c.step.rows,
                          .experts_per_token = k,
                          .gate = w.gate,
                          .x = c.act.normed,
                          .tokens = c.tokens,
                          .sequence_of = c.step.sequence_of,
                          .tid2eid = w.tid2eid,
                          .bias = w.bias,
                          .routed_scale = static_cast<float>(config.routed_scaling_factor),
                          .experts = c.act.experts,
                          .weights = c.act.expert_weights,
                          .counts = w.counts,
                          .calls = w.calls}));
  if (c.pages != nullptr && !c.planning) {
    c.pages->Choose(w.block, {c.act.experts, static_cast<size_t>(c.step.rows) * k});
  }
  c.Show(layer, "route_expert", c.act.experts, DType::kI32, k);
  c.Show(layer, "route_weight", c.act.expert_weights, DType::kF32, k);
  const ExpertFfnParams ffn{.rows = c.step.rows,
                            .hidden = config.hidden_size,
                            .inter = config.moe_intermediate_size,
                            .expert_count = static_cast<int32_t>(config.n_routed_experts),
                            .experts_per_token = k,
                            .experts_table = w.table,
                            .format = w.format,
                            .shared_w1 = w.shared_w1,
                            .shared_w3 = w.shared_w3,
                            .shared_w2 = w.shared_w2,
                            .experts = c.act.experts,
                            .weights = c.act.expert_weights,
                            .limit = static_cast<float>(config.swiglu_limit),
                            .x = c.act.quantized,
                            .y = c.act.y};
  const bool cut = c.fetcher != nullptr || c.share != nullptr;
  if (c.planning || (!cut && c.streamer == nullptr)) return RunExperts(c, ffn);
  if (c.recording) return LaunchAll(c, ffn);
  const bool streams = c.streamer != nullptr && c.step.rows >= c.stream_rows;
  if (cut) return RunCut(c, w, ffn, streams);
  return streams ? RunStreamedWaves(c, w, FirstWave(c, ffn), true) : RunExperts(c, ffn);
}

}  // namespace dsv4
