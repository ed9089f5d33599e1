// SPDX-License-Identifier: Apache-2.0
// Where the tokenizer of a model comes from.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/text/chat_profile.h"

namespace dsv4 {

struct TokenizerText {
  std::string json;    // of a tokenizer.json, or made from the keys of a GGUF file
  std::string source;  // the file, for messages
  FoundChatEncoder encoder;
};

// `path`: a tokenizer.json, a model folder, or a GGUF file; a tokenizer.json beside the latter
// comes first. Errors: NotFound if there is none; those of ModelPath::Find, OpenGguf and
// GgufTokenizerJson; IoError.
absl::StatusOr<TokenizerText> ReadTokenizer(const std::string& path);

}  // namespace dsv4
