// SPDX-License-Identifier: Apache-2.0
// What a model is opened from: a folder in DeepSeek's layout, a GGUF file, or a folder with one
// GGUF model.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dsv4 {

struct ModelPath {
  std::string folder;  // with the files beside the weights: tokenizer.json, generation_config.json
  std::string gguf;    // the GGUF file, or a part of it; "": the folder is in DeepSeek's layout

  // `path`: a folder, or a file that ends in ".gguf". A folder with weights in DeepSeek's layout is
  // one, whatever else it has. Errors: InvalidArgument for an empty path, and for a folder with
  // several GGUF models, listing them.
  static absl::StatusOr<ModelPath> Find(const std::string& path);
};

}  // namespace dsv4
