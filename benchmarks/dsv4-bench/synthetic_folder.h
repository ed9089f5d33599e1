// SPDX-License-Identifier: Apache-2.0
// A model folder that asks for random weights, so that a model of any size can be measured where
// its weights are not at hand, by the same calls that open any other.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// A temporary folder, removed at the end of its life: `model`'s config.json, with random weights
// for its first `layers` layers, and links to its tokenizer and sampling defaults where it has
// them.
class SyntheticFolder {
 public:
  // Throws a chat::Failure that names the file or folder at fault.
  SyntheticFolder(const std::string& model, int32_t layers);
  ~SyntheticFolder();
  SyntheticFolder(const SyntheticFolder&) = delete;
  SyntheticFolder& operator=(const SyntheticFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bench
