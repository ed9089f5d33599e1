// SPDX-License-Identifier: Apache-2.0
// Views of a model's weights, in the structure that the forward pass reads. lib/weights/weights.h
// loads them and owns their memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/op/moe.h"
#include "lib/config/config.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

struct HyperConnectionWeights {
  const float* fn = nullptr;     // [24, 4 D]; the head's: [4, 4 D]
  const float* base = nullptr;   // [24]; [4]
  const float* scale = nullptr;  // [3]; [1]
};

struct CompressorWeights {
  const float* ape = nullptr;      // [ratio, w], w = 2 d at ratio 4, d at ratio 128
  Bf16Weight wkv, wgate;           // [w, D]
  const uint16_t* norm = nullptr;  // [d] bf16, d = 512, or 128 for the indexer's
};

struct IndexerWeights {
  Fp8Weight wq_b;           // [index_n_heads * 128, q_lora_rank]
  Bf16Weight weights_proj;  // [index_n_heads, D]
  CompressorWeights compressor;
};

struct AttentionWeights {
  const float* sink = nullptr;        // [H]
  Fp8Weight wq_a;                     // [q_lora_rank, D]
  const uint16_t* q_norm = nullptr;   // [q_lora_rank] bf16
  Fp8Weight wq_b;                     // [H * 512, q_lora_rank]
  Fp8Weight wkv;                      // [512, D]
  const uint16_t* kv_norm = nullptr;  // [512] bf16
  Fp8Weight wo_a;                     // [G * o_lora_rank, H * 512 / G]
  Fp8Weight wo_b;                     // [D, G * o_lora_rank]
  CompressorWeights compressor;       // ratio 4 or 128 only
  IndexerWeights indexer;             // ratio 4 only
};

struct MoeWeights {
  Bf16Weight gate;                   // [E, D]
  const int32_t* tid2eid = nullptr;  // [vocab, K], hash-routed layers only (stored I64 is narrowed)
  const float* bias = nullptr;       // [E], scored layers only
  std::vector<ExpertWeights> experts;              // [E]
  std::vector<const ExpertWeights*> expert_table;  // [E], into experts
  const ExpertWeights* const* table = nullptr;     // [E], what the kernels read
  int32_t block = 0;                               // ExpertId's
  ExpertFormat format = ExpertFormat::kMxfp4;      // in which a device runs its experts
  ExpertBlocks blocks;                             // of kBlocks
  // The gate's counters, for experts that move or are fetched (kernels/op/moe.h).
  ExpertCounts* counts = nullptr;
  uint32_t* calls = nullptr;
  Fp8Weight shared_w1, shared_w3, shared_w2;  // [I, D], [I, D], [D, I]
};

struct BlockWeights {
  int32_t compress_ratio = 0;
  HyperConnectionWeights hc_attn, hc_ffn;
  const uint16_t* attn_norm = nullptr;  // [D] bf16
  const uint16_t* ffn_norm = nullptr;   // [D] bf16
  AttentionWeights attn;
  MoeWeights moe;
};

// The weights of an MTP block's input.
struct MtpWeights {
  Fp8Weight e_proj, h_proj;         // [D, D]
  const uint16_t* enorm = nullptr;  // [D] bf16
  const uint16_t* hnorm = nullptr;  // [D] bf16
};

// Weights of a DSpark drafter outside its stages.
struct DsparkWeights {
  Fp8Weight main_proj;                  // [D, taps * D]
  const uint16_t* main_norm = nullptr;  // [D] bf16
  // Read by a kernel of their own, in the checkpoint's layout on every device.
  Bf16Weight markov_w1, markov_w2;  // [vocab, rank]: looked up; multiplied
  Bf16Weight confidence;            // [1, D + rank]
};

// The blocks mtp.N of a checkpoint, which draft.
struct DrafterWeights {
  DrafterKind kind = DrafterKind::kNone;
  std::vector<BlockWeights> blocks;  // of ratio 0
  const uint16_t* norm = nullptr;    // [D] bf16
  HyperConnectionWeights hc_head;
  MtpWeights mtp;        // kMtp only
  DsparkWeights dspark;  // kDspark only
};

// The weights of a forward pass on one rank: all rows of some matrices, the rank's rows of the
// others (lib/config/shard.h).
struct WeightViews {
  Bf16Weight embed;                // [vocab, D]
  Bf16Weight head;                 // [vocab, D]
  const uint16_t* norm = nullptr;  // [D] bf16
  HyperConnectionWeights hc_head;
  std::vector<BlockWeights> layers;         // [L]
  std::unique_ptr<DrafterWeights> drafter;  // null when absent
};

}  // namespace dsv4
