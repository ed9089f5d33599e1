// SPDX-License-Identifier: Apache-2.0
// The first stage of opening an engine: what the options and the model's files settle before a
// device is opened or a weight is described.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/tuning/tuning_file.h"
#include "lib/config/shard.h"
#include "lib/engine/engine_options.h"
#include "lib/io/checkpoint.h"
#include "lib/io/content_hash.h"
#include "lib/step/engine_facts.h"
#include "lib/step/engine_text.h"

namespace dsv4 {

struct EngineSettings {
  std::string folder;     // empty: random weights for a configuration without a folder
  EngineOptions options;  // as given, without `progress`
  EngineFacts facts;      // info has no bytes, devices or drafter yet
  std::unique_ptr<EngineText> text;
  std::vector<uint32_t> with_text;  // mask of the tokens that have a text; empty: all
  ContentHash config_hash;          // of config.json
  Shards shards;
  std::vector<TuningFile> tuning_files;  // of the option tuning_dir
  // The most tokens of a prompt's step that fit, if the options leave them open; 0: no limit.
  int64_t chunk_limit = 0;

  // Sets the tokens of a prompt's step, if the options leave them open.
  void SettlePrefillChunk();
  int ranks() const { return shards.ranks; }
  int first_rank() const { return options.group.rank; }  // of this process
  // The folder's weights, or random ones.
  absl::StatusOr<std::unique_ptr<Checkpoint>> OpenCheckpoint() const;
};

// Reads the model's configuration and tokenizer, and settles every option against them. A folder
// without a tokenizer is fine. Errors name the file and key, or the option.
absl::StatusOr<EngineSettings> Settle(const std::string& folder, const EngineOptions& options);
// Settle for random weights of a configuration, without a folder.
absl::StatusOr<EngineSettings> SettleRandom(absl::string_view config_json,
                                            const EngineOptions& options);

}  // namespace dsv4
