// SPDX-License-Identifier: Apache-2.0
// Detects which published chat encoder a model was trained with. The encoders differ in the
// instruction about reasoning effort at the head of the prompt.
#pragma once

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
  std::string file;   // the file of the folder that identified it; empty for a guess
  std::string guess;  // why the encoder was taken where no file identifies it, else empty
};

// Detects the encoder by the instructions in a file of the model folder: the published encoder or a
// chat template. Where no file has them, guesses it: by the folder's name, which may have the
// release's date, then by the keys of a DSpark drafter in config.json, which all 0731 models have
// and few others, else the preview's. Ignores files above 1 MiB.
FoundChatEncoder FindChatEncoder(const std::string& folder);

}  // namespace dsv4
