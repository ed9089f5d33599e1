// SPDX-License-Identifier: Apache-2.0
// Constraints on the form of an answer: the tools that it may call, a schema.
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
  bool strict = false;            // about the schema: what cannot be enforced is an error
  bool shows_schema = false;      // the schema goes into the prompt, too
  std::string schema_field = {};  // of the request, for errors
};

// Adds the form to the prompt's sampling and to the system message of `messages`. What the grammar
// does not enforce is an error for a strict schema or function, except "format" and "uniqueItems",
// which clients check. Throws an ApiError that names the field.
void ApplyForm(const Model& model, const OutputForm& form, Prompt* prompt, TurnOptions* turn,
               Json* messages);

// The places that the grammar does not enforce, in ASCII for a header: separated by a comma and a
// space, other characters percent-encoded. A long list is cut, which "..." shows.
std::string UnenforcedPlaces(const dsv4::Grammar& grammar);

// Reads one of OpenAI's words (auto, none or required) into *options and returns true. False for an
// object, which names the function to call. Throws an ApiError for anything else.
bool ReadToolChoiceWord(const Json& choice, dsv4::ToolOptions* options);

// The schema of {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "schema"}.
void ReadSchemaType(Fields* format, OutputForm* form);

// Adds a function of the request to the form: a tool {"name", "description", "parameters",
// "strict"}. Throws an ApiError if it has no name. `function`: members of `path`.
void AddFunction(Fields* function, OutputForm* form);
// Notes that a tool of this type is left out; throws where requests are read strictly.
void LeaveOutTool(const Fields& tool, const std::string& type);

}  // namespace server
