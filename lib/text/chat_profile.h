// SPDX-License-Identifier: Apache-2.0
// Detects which published chat encoder a model was trained with. The encoders differ in the
// instruction about reasoning effort at the head of the prompt.
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

// The effort with this name in the published encoder. "": none. Errors: InvalidArgument for names
// that `encoder` refuses; the preview refuses "low" and "".
absl::StatusOr<ReasoningEffort> EffortFromName(ChatEncoder encoder, absl::string_view name);

struct FoundChatEncoder {
  ChatEncoder encoder;
  std::string file;  // the file of the folder that identified it
};

// Detects the encoder by the instructions in a file of the model folder: the published encoder or a
// chat template. nullopt if no file identifies it. Ignores files above 1 MiB.
std::optional<FoundChatEncoder> FindChatEncoder(const std::string& folder);

}  // namespace dsv4
