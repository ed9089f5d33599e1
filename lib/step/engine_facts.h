// SPDX-License-Identifier: Apache-2.0
// The numbers of an engine: sizes, limits, special tokens. Fixed once the engine is open. Timelines
// and others that need only these numbers include this file and not the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/registry/dispatch.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/experts/expert_residency.h"
#include "lib/kv/kv_cache.h"

namespace dsv4 {

// The result of the model folder's canary (lib/proof/canary.h). Values of dsv4_canary.
enum class CanaryState : int32_t { kNone, kPassed, kFailed, kNotRun };
const char* CanaryStateName(CanaryState state);  // "none"

// Memory of one device of an engine. CPU ranks map the same files; there `weights` counts the bytes
// that the rank reads.
struct DeviceBytes {
  int64_t weights = 0, cache = 0, workspace = 0;
  int32_t index = -1;  // of the backend's devices; -1: another process's
  int64_t total() const { return weights + cache + workspace; }
};

struct EngineInfo {
  Backend backend;
  Numerics numerics;
  RowFormat cache_format;
  int threads = 0;
  int64_t context_tokens = 0, cache_tokens = 0;
  int32_t max_sessions = 0, prefill_chunk_tokens = 0, max_draft_tokens = 0;
  bool has_tokenizer = false;
  DrafterKind checkpoint_drafter = DrafterKind::kNone;  // what the folder has
  DrafterKind drafter = DrafterKind::kNone;             // what drafts for this engine's sessions
  int64_t weight_bytes = 0, cache_bytes = 0, workspace_bytes = 0;  // of all devices together
  std::vector<DeviceBytes> devices{};
  ExchangeCost exchange;
  ResidencyPlan residency;          // without blocks where all is mapped and stays
  int64_t mapped_expert_bytes = 0;  // of routed experts in mapped files
  int64_t token_expert_bytes = 0;   // of routed experts that one token reads, in any memory
  // Predicted, in tokens per second (lib/engine/expectation.h); 0: unknown.
  double expected_decode = 0, expected_prefill = 0;
  CanaryState canary = CanaryState::kNone;
  // What was chosen, why the alternatives were not, and limits that were lowered to fit; empty: the
  // options left nothing to choose.
  std::string backend_reason{};
  // The operators that run the second set of kernels, as OpName has them (KernelSet).
  std::vector<std::string> second_set_operators{};
  // The device that has most.
  const DeviceBytes& fullest() const;
};

struct EngineFacts {
  EngineInfo info{};
  RowFormat key_format = RowFormat::kIndexFp4;  // of the cache's index keys
  ModelConfig config{};
  GenerationConfig generation{};
  // Tokens that end a turn: config's eos_token_id and generation_config's.
  std::vector<int32_t> eos_tokens{};
  // Ids from here on have no text and are never sampled; nor are the gaps below it.
  int32_t token_limit = 0;
  std::vector<int32_t> token_gaps{};
  // The tokens that begin and end reasoning; -1: the tokenizer has none.
  int32_t think_token = -1, think_end_token = -1;

  // Whether the checkpoint's drafter is planned for.
  bool plans_drafter() const {
    return info.drafter != DrafterKind::kNone && info.drafter != DrafterKind::kNgram;
  }
  // How many slots past the rows of a step a draft of `drafts` tokens takes in a sequence's blocks.
  int32_t DraftSlots(int32_t drafts) const;
  // The most tokens that the drafter drafts at once, `limit` at most.
  int32_t MostDrafts(int32_t limit) const;
};

}  // namespace dsv4
