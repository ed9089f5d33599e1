// SPDX-License-Identifier: Apache-2.0
// The models of the known-answer test (device_proof.h), and their passes behind made-up cache rows.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/token_candidates.h"
#include "lib/engine/engine.h"
#include "lib/kv/kv_sequence.h"

namespace dsv4 {

// The model with an MTP block, one with a DSpark drafter for what that alone computes, one with the
// block formats of GGUF files, and one with NVFP4 experts for what those compute.
enum class ProofModel { kMtp, kDspark, kBlocks, kNvfp4 };
inline constexpr ProofModel kProofModels[] = {ProofModel::kMtp, ProofModel::kDspark,
                                              ProofModel::kBlocks, ProofModel::kNvfp4};

std::string ProofConfig(ProofModel model);  // as in config.json
EngineOptions ProofEngineOptions(ProofModel model);

// Tokens in front of the passes, whose cache rows are made up: the last of four that are computed
// ends a compressed block of either ratio.
inline constexpr int32_t kProofPast = 252;

// A bf16 number from -`most` to `most`.
float MadeUp(std::mt19937_64& random, float most);

// One sequence of the model, behind a past.
class ProofTimeline {
 public:
  explicit ProofTimeline(Engine& engine) : engine_(engine) {}

  absl::Status Open();

  // The next `rows` rows through the layers, the head and the drafter's block.
  absl::Status Pass(int32_t rows);

  // Logits of the first and the last row of each pass, and of blocks that were drafted.
  const std::vector<float>& logits() const { return logits_; }

 private:
  bool Dspark() const { return engine_.info().drafter == DrafterKind::kDspark; }

  absl::Status Reserve(int32_t rows);

  // The MTP block on the rows from `first` on.
  absl::Status DraftAfter(int64_t first, int32_t rows);

  // A block of the DSpark drafter from `begin` on, and what its tokens say of each other.
  absl::Status DraftBlock(int64_t begin);

  // Backends in the host's memory make no lists.
  static absl::Status ExpectCandidate(absl::Span<const float> logits, const CandidateList* list);

  Engine& engine_;
  std::optional<KvSequence> sequence_;
  std::vector<float> logits_;
};

}  // namespace dsv4
