// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/synthetic_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "examples/console/failure.h"
#include "examples/console/files.h"

namespace bench {
namespace {

namespace fs = std::filesystem;
using chat::Failure;

// `config` with the key that asks for random weights.
std::string SyntheticConfig(std::string config, const std::string& path, int32_t layers,
                            const std::string& mix) {
  const size_t brace = config.find('{');
  if (brace == std::string::npos) throw Failure{chat::kModelError, path + ": is no JSON object"};
  std::string keys = "\"dsv4_synthetic_layers\": " + std::to_string(layers) + ", ";
  if (!mix.empty()) keys += "\"dsv4_synthetic_mix\": \"" + mix + "\", ";
  return config.insert(brace + 1, keys);
}

}  // namespace

SyntheticFolder::SyntheticFolder(const std::string& model, int32_t layers, const std::string& mix) {
  const std::string from = model + "/config.json";
  const std::string config = SyntheticConfig(chat::ReadWholeFile(from), from, layers, mix);
  path_ = NewFolder();
  try {
    chat::ReplaceFile(path_ + "/config.json", config);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
      const fs::path file = fs::absolute(model) / name;
      if (fs::exists(file)) PutFile(file.string(), path_ + "/" + name);
    }
  } catch (...) {
    fs::remove_all(path_);
    throw;
  }
}

SyntheticFolder::~SyntheticFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace bench
