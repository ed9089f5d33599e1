// SPDX-License-Identifier: Apache-2.0
// Checkpoints for tests of loading: folders, and a small model whose tensors a test changes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "lib/weights/weights.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

using Loaded = absl::StatusOr<std::unique_ptr<Weights>>;

inline ModelConfig Config(const std::string& json) {
  auto config = ParseModelConfig(json, "config.json");
  REQUIRE_OK(config);
  return *config;
}

inline Loaded LoadFolder(const std::string& folder, const ModelConfig& config,
                         const std::function<bool(int64_t, int64_t)>& progress = nullptr) {
  auto checkpoint = Checkpoint::Open(folder);
  if (!checkpoint.ok()) return checkpoint.status();
  return Weights::Load(config, std::move(*checkpoint), progress);
}

// The bundled model cut down to its first three layers (a CSA layer among them) and the MTP block,
// as one list of tensors for a test to change.
class SmallModel {
 public:
  SmallModel()
      : config_json_(EditedJson(EditedJson(BundledFile("config.json"), "num_hidden_layers", "3"),
                                "compress_ratios", "[0, 0, 4, 0]")) {
    const auto checkpoint = Checkpoint::Open(BundledModel());
    REQUIRE_OK(checkpoint);
    for (const auto& [name, entry] : (*checkpoint)->tensors()) {
      if (absl::StartsWith(name, "layers.") && name[7] > '2') continue;
      tensors_.push_back({name, std::string(DTypeName(entry.dtype)), entry.shape,
                          std::string(entry.data, entry.data + entry.bytes)});
    }
  }

  std::vector<StoredTensor>& tensors() { return tensors_; }
  std::string& config_json() { return config_json_; }

  StoredTensor& operator[](const std::string& name) {
    for (StoredTensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    FAIL("no tensor " << name);
    return tensors_[0];
  }

  void Remove(const std::string& name) {
    StoredTensor& tensor = (*this)[name];
    tensors_.erase(tensors_.begin() + (&tensor - tensors_.data()));
  }

  Loaded Load(const std::function<bool(int64_t, int64_t)>& progress = nullptr) const {
    const TempFolder folder;  // the mapped file outlives its name
    folder.Write("model.safetensors", SafetensorsImage(tensors_));
    return LoadFolder(folder.path(), Config(config_json_), progress);
  }

  Loaded Describe() const {
    const TempFolder folder;
    folder.Write("model.safetensors", SafetensorsImage(tensors_));
    auto checkpoint = Checkpoint::Open(folder.path());
    REQUIRE_OK(checkpoint);
    return Weights::Describe(Config(config_json_), std::move(*checkpoint));
  }

 private:
  std::string config_json_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace dsv4::test
