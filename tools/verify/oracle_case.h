// SPDX-License-Identifier: Apache-2.0
// One case of the recorded oracle (tests/oracle/README.md): a model's configuration, a seed, and
// which prompts were run. oracle_checkpoint.h writes its checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/model/config.h"

namespace dsv4 {

struct OracleCase {
  std::string name;
  uint64_t seed = 0;
  int64_t shards = 1;
  std::vector<int64_t> prompts;  // lengths in tokens
  int64_t decode = 0;            // forced tokens after each prompt
  std::vector<int64_t> record;   // the prompts whose layers are recorded
  std::string model_json;        // the checkpoint's config.json
  ModelConfig model;             // the same, read
};

// Reads a case file. Errors: those of ReadFile, ParseJson and ParseModelConfig; InvalidArgument
// naming the key for a missing or impossible value.
absl::StatusOr<OracleCase> LoadOracleCase(const std::string& path);

// The case's `n` token ids for `what`, "prompt" or "decode", each in [3, vocab_size).
std::vector<int32_t> OraclePrompt(const OracleCase& oracle, absl::string_view what, int64_t n);

}  // namespace dsv4
