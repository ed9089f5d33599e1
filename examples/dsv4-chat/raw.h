// SPDX-License-Identifier: Apache-2.0
// --raw: text that the model continues, without the form of a conversation.
#pragma once

#include <string>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// Continues `prompt`, in which markers are control tokens, after the begin-of-sentence token.
// Returns the exit code; throws Failures and Errors.
int ContinueText(const Options& options, const std::string& prompt, Screen* screen,
                 TurnOutput* output);

}  // namespace chat
