// SPDX-License-Identifier: Apache-2.0
// What the form of an answer is held to: tools that it may call, a schema. And texts of messages.
#pragma once

#include <initializer_list>
#include <string>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/turn.h"

namespace server {

struct OutputForm {
  Json tools = Json::array();  // in the form of OpenAI's chat API
  dsv4::ToolOptions choice = {};
  Json schema = nullptr;          // of the answer; null: free
  bool shows_schema = false;      // the schema goes into the prompt, too
  std::string schema_field = {};  // of the request, for errors
};

// Puts the form into the prompt's sampling and into the system message of `messages`. Throws an
// ApiError that names the field.
void ApplyForm(const Model& model, const OutputForm& form, Prompt* prompt, TurnOptions* turn,
               Json* messages);

// Whether `choice` is one of OpenAI's words: auto, none or required, which *options then says.
// False for an object, which names the function to call. Throws an ApiError for anything else.
bool ReadToolChoiceWord(const Json& choice, dsv4::ToolOptions* options);

// The schema of {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "schema"}.
void ReadSchemaType(Fields* format, OutputForm* form);

void AddToSystem(Json* messages, const char* key, Json value);

// Throws unless `content` is a text or a list of parts of text, of `types`: the model sees nothing
// else. Parts without a type are text.
void CheckContent(const Json& content, const std::string& path,
                  std::initializer_list<const char*> types);

// Throws for messages that the library does not take, and for a last message that asks for no
// reply. `field`: of the request.
void CheckMessages(const Json& messages, const std::string& field);

}  // namespace server
