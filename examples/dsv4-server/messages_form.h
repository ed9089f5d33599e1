// SPDX-License-Identifier: Apache-2.0
// The list of messages as the model's format has it: where system messages may stand, and what the
// last message must be.
#pragma once

#include <string>

#include "examples/dsv4-server/json.h"

namespace server {

// Makes of `messages` a list that the model answers.
// - A system message after messages of the user or tools moves before them, unless the user goes
// on:
//   in the format, only their end opens the assistant's turn. A system message at the end without
//   any gets an empty message of the user.
// - A last message of the assistant is the beginning of the answer. Returns whether there is one.
// Throws an ApiError for messages that the library does not take. `field`: of the request.
bool FinishMessages(Json* messages, const std::string& field);

// Adds a member to the system message at the beginning, which is added if there is none.
void AddToSystem(Json* messages, const char* key, Json value);

// The arguments of a call as the library takes them: empty ones are no parameters.
Json ArgumentsOf(const Json& given);

}  // namespace server
