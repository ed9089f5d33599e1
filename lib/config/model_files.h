// SPDX-License-Identifier: Apache-2.0
// The configuration files of a model: config.json or the keys of a GGUF file, and
// generation_config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/config/config.h"
#include "lib/io/content_hash.h"

namespace dsv4 {

struct ModelFiles {
  ModelConfig config;
  GenerationConfig generation;      // defaults if the folder has no generation_config.json
  std::vector<int32_t> eos_tokens;  // that end a turn: the config's and the generation config's
  ContentHash config_hash;          // of the bytes of config.json, or of the GGUF file's header
};

// Reads the files of a folder, or of a GGUF file and beside it. `synthetic_layers`: as
// EngineOptions; not 0: random weights for that many layers. Errors: those of ModelPath::Find,
// ReadFile and OpenGguf; Corrupt, with file and key; InvalidArgument for more layers than the model
// has.
absl::StatusOr<ModelFiles> ReadModelFiles(const std::string& path, int64_t synthetic_layers = 0);

}  // namespace dsv4
