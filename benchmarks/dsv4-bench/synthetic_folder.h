// SPDX-License-Identifier: Apache-2.0
// A model folder that asks for random weights, so that a model of any size can be measured without
// its weights, with the calls that open any other folder.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

// A new empty folder among the user's temporary ones. Throws a chat::Failure.
std::string NewFolder();
// Makes the file `file` appear as `as`: by a link where users may make some.
void PutFile(const std::string& file, const std::string& as);

// A temporary folder, removed by the destructor: `model`'s config.json, which asks for random
// weights of types `mix` (empty: DeepSeek's) for its first `layers` layers, and its tokenizer and
// sampling defaults (PutFile), if it has them.
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
