// SPDX-License-Identifier: Apache-2.0
// One case of the recorded oracle (tests/oracle/README.md): a model's configuration, a seed, and
// which prompts were run. oracle_checkpoint.h writes its checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/config/config.h"

namespace dsv4 {

// How a case's checkpoint stores routed experts.
enum class CaseFormat {
  kMxfp4,
  kNvfp4,      // the values of kMxfp4, as NVIDIA's cast writes them
  kNvfp4Real,  // scales that no cast from MXFP4 gives
  kFp8,        // values of their own
  kFp8Cast,    // the values of kMxfp4, as the published converter writes them
};

// The drafter of a case that has a DSpark one.
struct CaseDspark {
  int64_t block_size = 0;  // 0: the case has none
  int64_t taps = 0;        // layers whose outputs it sees
  int64_t markov_rank = 0;
};

struct OracleCase {
  std::string name;
  uint64_t seed = 0;
  int64_t shards = 1;
  std::vector<int64_t> prompts;                    // lengths in tokens
  int64_t decode = 0;                              // forced tokens after each prompt
  std::vector<int64_t> record;                     // the prompts whose layers are recorded
  std::vector<int64_t> draft_after;                // forced tokens after which drafts are recorded
  CaseFormat expert_format = CaseFormat::kMxfp4;   // of layers.*
  CaseFormat drafter_format = CaseFormat::kMxfp4;  // of mtp.*
  bool f32_scales = false;                         // of every block FP8 weight, in place of E8M0
  int64_t stages = 0;  // blocks mtp.N: entries of compress_ratios past the layers
  CaseDspark dspark;
  std::string model_json;  // the checkpoint's config.json
  ModelConfig model;       // the same, read

  bool HasMtp() const { return stages > 0 && dspark.block_size == 0; }
  bool HasDspark() const { return dspark.block_size > 0; }
};

// Reads a case file. Errors: those of ReadFile, ParseJson and ParseModelConfig; InvalidArgument
// naming the key for a missing or impossible value.
absl::StatusOr<OracleCase> LoadOracleCase(const std::string& path);

// The case's `n` token ids for `what`, "prompt", "decode" or "draft", each in [3, vocab_size).
std::vector<int32_t> OraclePrompt(const OracleCase& oracle, absl::string_view what, int64_t n);

}  // namespace dsv4
