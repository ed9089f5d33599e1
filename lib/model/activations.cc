// SPDX-License-Identifier: Apache-2.0
#include "lib/model/activations.h"

#include <algorithm>

#include "kernels/op/rope.h"
#include "lib/base/checked_math.h"

namespace dsv4 {

int64_t PlanActivations(const ModelConfig& config, const StepLimits& limits, const Shards& shards,
                        int rank, bool waves, DType act, int64_t workspace_bytes,
                        int64_t side_bytes, std::byte* memory, Activations* out) {
  int64_t end = 0;
  const auto place = [&](auto*& pointer, int64_t rows, int64_t width, DType dtype) {
    using T = std::remove_reference_t<decltype(pointer)>;
    if (memory != nullptr) pointer = reinterpret_cast<T>(memory + end);
    end += RoundUp<int64_t>(rows * width * DTypeBytes(dtype), 64);
  };
  const auto has_ratio = [&](int32_t ratio) {
    return std::find(config.compress_ratios.begin(), config.compress_ratios.end(), ratio) !=
           config.compress_ratios.end();
  };
  const int64_t t = limits.rows, d = config.hidden_size;
  for (float** table :
       {&out->rope.window, &out->rope.compressed, &out->rope.ratio4, &out->rope.ratio128}) {
    place(*table, t, 2 * kRopePairs, DType::kF32);
  }
  place(out->streams, t, kStreams * d, act);
  place(out->normed, t, d, act);
  place(out->quantized, t, d, act);
  place(out->post, t, kStreams, DType::kF32);
  place(out->comb, t, kStreams * kStreams, DType::kF32);
  place(out->qr, t, config.q_lora_rank, act);
  place(out->qr_quantized, t, config.q_lora_rank, act);
  place(out->kv, t, kHeadDim, act);
  const int64_t own_groups = shards.groups[rank].size();
  place(out->q, t, config.num_attention_heads / config.o_groups * own_groups * kHeadDim, act);
  const int64_t pool_width = has_ratio(4) ? 2 * kHeadDim : has_ratio(128) ? kHeadDim : 0;
  place(out->pool_k, t, pool_width, DType::kF32);
  place(out->pool_z, t, pool_width, DType::kF32);
  if (has_ratio(4)) {
    place(out->index_q, t, config.index_n_heads * kIndexHeadDim, act);
    place(out->index_weights, t, config.index_n_heads, act);
    place(out->index_pool_k, t, 2 * kIndexHeadDim, DType::kF32);
    place(out->index_pool_z, t, 2 * kIndexHeadDim, DType::kF32);
    place(out->selected, t, config.index_topk, DType::kI32);
  }
  place(out->groups, t, config.o_groups * config.o_lora_rank, act);
  place(out->y, t, d, act);
  place(out->experts, t, config.num_experts_per_tok, DType::kI32);
  place(out->expert_weights, t, config.num_experts_per_tok, DType::kF32);
  if (waves) {
    place(out->wave_experts, t, config.num_experts_per_tok, DType::kI32);
    place(out->expert_outputs, t * (config.num_experts_per_tok + 1), shards.hidden[rank].size(),
          act);
  }
  place(out->head, limits.logit_rows, d, act);
  place(out->logits, limits.logit_rows, config.vocab_size, DType::kF32);
  const int64_t own_hidden = shards.hidden[rank].size();
  if (shards.ranks > 1) {
    const int64_t pairs = t * (config.num_experts_per_tok + 1);
    place(out->groups_part, t, own_groups * config.o_lora_rank, act);
    place(out->y_part, t, own_hidden, act);
    place(out->products, pairs, config.moe_intermediate_size, act);
    place(out->products_part, pairs, shards.inter[rank].size(), act);
    for (float*& part : out->logits_part) {
      place(part, limits.logit_rows, shards.vocab[rank].size(), DType::kF32);
    }
  } else {
    out->groups_part = out->groups;
    out->y_part = out->y;
    out->logits_part[0] = out->logits_part[1] = out->logits;
  }
  place(out->workspace, workspace_bytes, 1, DType::kU8);
  place(out->side_workspace, side_bytes, 1, DType::kU8);
  place(out->marked, kMarkedBytes, 1, DType::kU8);
  return end;
}

}  // namespace dsv4
