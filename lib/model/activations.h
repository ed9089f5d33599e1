// SPDX-License-Identifier: Apache-2.0
// The buffers between operators of one forward pass, planned for the largest step and laid out in
// one allocation. Names follow model.md; "act" buffers hold bf16 or f32, as the backend stores
// them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/op/step_rows.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/device/device.h"
#include "lib/tensor/dtype.h"

namespace dsv4 {

struct StepLimits {
  int32_t rows = 0;        // T: tokens of one step, all sequences together
  int32_t sequences = 0;   // B
  int32_t logit_rows = 0;  // R: rows whose logits one step may ask for
  int64_t positions = 0;   // exclusive bound of positions
  // The most tokens that are drafted for a session in a step.
  int32_t drafts = 0;
  // Rows of a step without prompts: one and the drafts of each sequence. At most `rows`.
  int32_t decode_rows = 0;
};

struct Activations {
  RopeTables rope;                  // 4 x [T, 64] f32
  void* streams = nullptr;          // [T, 4, D] act
  void* normed = nullptr;           // [T, D] act
  void* quantized = nullptr;        // [T, D] act
  float* post = nullptr;            // [T, 4]
  float* comb = nullptr;            // [T, 4, 4]
  void* qr = nullptr;               // [T, q_lora_rank] act: wq_a x
  void* qr_quantized = nullptr;     // [T, q_lora_rank] act: its norm, quantised
  void* kv = nullptr;               // [T, 512] act: wkv x
  void* q = nullptr;                // [T, H, 512] act: queries, then the attention output; own H
  void* index_q = nullptr;          // [T, index_n_heads, 128] act
  void* index_weights = nullptr;    // [T, index_n_heads] act
  float* pool_k = nullptr;          // [T, 1024]
  float* pool_z = nullptr;          // [T, 1024]
  float* index_pool_k = nullptr;    // [T, 256]
  float* index_pool_z = nullptr;    // [T, 256]
  int32_t* selected = nullptr;      // [T, index_topk]
  void* groups = nullptr;           // [T, G * o_lora_rank] act, quantised
  void* y = nullptr;                // [T, D] act: a sub-layer's output
  int32_t* experts = nullptr;       // [T, K]
  float* expert_weights = nullptr;  // [T, K]
  // If experts are computed in waves: the experts of a wave, [T, K], and the outputs of all waves,
  // [T (K + 1), own D] act.
  int32_t* wave_experts = nullptr;
  void* expert_outputs = nullptr;
  void* head = nullptr;     // [R, D] act
  float* logits = nullptr;  // [R, vocab]
  // A rank's own columns of the tensors above that ranks divide; with one rank the tensors
  // themselves. Two consecutive exchanges never use the same one.
  void* groups_part = nullptr;
  void* y_part = nullptr;
  void* products = nullptr;       // [T (K + 1), I] act: between the halves of the experts
  void* products_part = nullptr;  // these two with several ranks, or after SplitExperts
  float* logits_part[2] = {};

  std::byte* workspace = nullptr;       // of the operators
  std::byte* side_workspace = nullptr;  // the same, of those on the device's second stream
  std::byte* marked = nullptr;          // LaunchContext::marked of the first stream
};

// Bytes of all buffers of a rank, with the given bytes for the operators' workspaces. Unless
// `memory` is null, points *out into it (64-byte aligned parts).
int64_t PlanActivations(const ModelConfig& config, const StepLimits& limits, const Shards& shards,
                        int rank, bool waves, DType act, int64_t workspace_bytes,
                        int64_t side_bytes, std::byte* memory, Activations* out);

}  // namespace dsv4
