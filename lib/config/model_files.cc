// SPDX-License-Identifier: Apache-2.0
#include "lib/config/model_files.h"

#include <utility>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/config/gguf_config.h"
#include "lib/io/checkpoint.h"
#include "lib/io/gguf.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_path.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// An impossible value in a model's file is a fault of the file: the caller's arguments are right.
absl::Status FaultOfFile(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? Corrupt(status.message()) : status;
}

absl::StatusOr<ModelConfig> ReadConfig(const std::string& path, ContentHash* hash) {
  DSV4_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxConfigBytes));
  *hash = HashOf(json);
  return ParseModelConfig(json, path);
}

absl::StatusOr<ModelConfig> ReadKeys(const std::string& path, ContentHash* hash) {
  DSV4_ASSIGN_OR_RETURN(const GgufModel model, OpenGguf(path));
  *hash = HashOf(model.files.front().bytes().subspan(
      0, static_cast<size_t>(model.parts.front().header_bytes)));
  return ReadGgufConfig(model);
}

absl::StatusOr<GenerationConfig> ReadGenerationConfig(const std::string& path) {
  absl::StatusOr<std::string> json = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(json.status())) return GenerationConfig();
  DSV4_RETURN_IF_ERROR(json.status());
  absl::StatusOr<GenerationConfig> generation = ParseGenerationConfig(*json, path);
  if (!generation.ok()) return FaultOfFile(generation.status());
  for (const std::string& key : generation->unused_keys) {
    Log(LogLevel::kInfo, path, ": ", Quoted(key), " is not followed");
  }
  return generation;
}

}  // namespace

absl::StatusOr<ModelFiles> ReadModelFiles(const std::string& path, int64_t synthetic_layers) {
  ModelFiles files;
  DSV4_ASSIGN_OR_RETURN(const ModelPath found, ModelPath::Find(path));
  const std::string& folder = found.folder;
  const std::string config_path = found.gguf.empty() ? folder + "/config.json" : found.gguf;
  absl::StatusOr<ModelConfig> parsed = found.gguf.empty()
                                           ? ReadConfig(config_path, &files.config_hash)
                                           : ReadKeys(config_path, &files.config_hash);
  if (!parsed.ok()) return FaultOfFile(parsed.status());
  ModelConfig& config = files.config = *std::move(parsed);
  // Random weights must not replace the folder's own.
  if (config.synthetic_layers > 0 && Checkpoint::LiesIn(folder)) {
    return Corrupt(config_path, ": dsv4_synthetic_layers is for folders without weights; ", folder,
                   " has some");
  }
  if (synthetic_layers > config.num_hidden_layers) {
    return InvalidArgument("option synthetic_layers = ", synthetic_layers, "; ", config_path,
                           " has ", config.num_hidden_layers, " layers");
  }
  if (synthetic_layers > 0) config.synthetic_layers = synthetic_layers;
  if (config.synthetic_layers > 0) config = FirstLayers(config, config.synthetic_layers);
  const std::string generation_path = folder + "/generation_config.json";
  DSV4_ASSIGN_OR_RETURN(files.generation, ReadGenerationConfig(generation_path));
  files.eos_tokens = config.eos_token_ids;
  for (const int32_t token : files.generation.eos_token_ids) {
    if (token < 0 || token >= config.vocab_size) {
      return Corrupt(generation_path, ": eos_token_id ", token, " is not in 0..",
                     config.vocab_size - 1);
    }
    files.eos_tokens.push_back(token);
  }
  return files;
}

}  // namespace dsv4
