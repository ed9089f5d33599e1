// SPDX-License-Identifier: Apache-2.0
// Which of the family's published chat encoders a model was trained with, and what the two differ
// in: the instruction that a reasoning effort puts at the head of the prompt.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4 {

absl::string_view ChatEncoderName(ChatEncoder encoder);  // "preview" or "0731"

// The instruction, line breaks included; empty for efforts that write nothing.
absl::string_view EffortPrompt(ChatEncoder encoder, ReasoningEffort effort);

// An effort by the name that the published encoder gives it; empty is none. InvalidArgument for
// what it refuses: "low" is the newer encoder's only, and so is the empty name.
absl::StatusOr<ReasoningEffort> EffortFromName(ChatEncoder encoder, absl::string_view name);

struct FoundChatEncoder {
  ChatEncoder encoder;
  std::string file;  // which says so, within the folder
};

// The encoder that the files of a model folder show by their instructions: the published encoder
// itself, or a chat template. Nullopt where none of them shows one; config.json cannot. Files of
// more than 1 MiB count for nothing.
std::optional<FoundChatEncoder> FindChatEncoder(const std::string& folder);

}  // namespace dsv4
