// SPDX-License-Identifier: Apache-2.0
// A model folder that asks for random weights, so that a model of any size can be measured without
// its weights, with the calls that open any other folder.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// A temporary folder, removed by the destructor: `model`'s config.json, which asks for random
// weights of types `mix` (empty: DeepSeek's) for its first `layers` layers, and links to its
// tokenizer and sampling defaults, if it has them.
class SyntheticFolder {
 public:
  // Throws a chat::Failure that names the file or folder at fault.
  SyntheticFolder(const std::string& model, int32_t layers, const std::string& mix);
  ~SyntheticFolder();
  SyntheticFolder(const SyntheticFolder&) = delete;
  SyntheticFolder& operator=(const SyntheticFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace bench
