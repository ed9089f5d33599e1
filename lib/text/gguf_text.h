// SPDX-License-Identifier: Apache-2.0
// The text side of a GGUF file: its tokenizer, and the chat encoder that its model was trained
// with.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/io/gguf.h"
#include "lib/text/chat_profile.h"

namespace dsv4 {

// The tokenizer of the keys tokenizer.ggml.* as the text of a tokenizer.json. Errors, naming the
// key: Corrupt for a key that is missing, of a wrong type or length; Unsupported for tokenizers of
// other families; NotFound if all tokens are unused, as in files that were made without one.
absl::StatusOr<std::string> GgufTokenizerJson(const GgufModel& model);

// By the text of the chat template, which is not run; else the version of the base model, else the
// file's name. nullopt if nothing tells.
std::optional<FoundChatEncoder> GgufChatEncoder(const GgufModel& model);

}  // namespace dsv4
