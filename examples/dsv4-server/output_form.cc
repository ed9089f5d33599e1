// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/output_form.h"

#include <algorithm>
#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

// The first argument of errors in grammars is the source that is given to the library.
template <class Function>
dsv4::Grammar OpenGrammar(const std::string& field, Function&& open) {
  try {
    return open();
  } catch (const dsv4::Error& error) {
    ApiError failure = CurrentApiError();
    failure.param = field;
    failure.message = field + ": " + failure.message;
    throw failure;
  }
}

bool IsStrict(const Json& tool) {
  const Json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
  return function.is_object() && function.contains("strict") && function["strict"] == true;
}

// Calls are held to the schemas of their tools. OpenAI's API promises that for `strict` functions
// alone: other ones may have schemas that cannot be held.
dsv4::Grammar ToolGrammar(const dsv4::Engine& engine, const Json& tools,
                          dsv4::ToolOptions options) {
  return OpenGrammar("tools", [&] {
    try {
      return engine.ToolGrammar(TextOf(tools), options);
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_UNSUPPORTED || std::any_of(tools.begin(), tools.end(), IsStrict))
        throw;
      options.lenient = true;
      return engine.ToolGrammar(TextOf(tools), options);
    }
  });
}

}  // namespace

void ApplyForm(const Model& model, const OutputForm& form, Prompt* prompt, TurnOptions* turn,
               Json* messages) {
  const bool has_tools = !form.tools.empty();
  if (!has_tools && form.choice.choice == DSV4_TOOL_CHOICE_REQUIRED)
    throw InvalidField("tool_choice", "asks for a call, and there are no tools");
  turn->no_calls = has_tools && form.choice.choice == DSV4_TOOL_CHOICE_NONE;
  if (has_tools && !form.schema.is_null() && !turn->no_calls)
    throw InvalidField(form.schema_field, "with tools needs a tool_choice of none");
  dsv4::Grammar* grammar = &prompt->sampling.grammar;
  if (has_tools) {
    *grammar = ToolGrammar(model.engine, form.tools, form.choice);
    AddToSystem(messages, "tools", form.tools);
  }
  if (form.schema.is_null()) return;
  *grammar = OpenGrammar(form.schema_field,
                         [&] { return model.engine.SchemaGrammar(TextOf(form.schema)); });
  if (form.shows_schema) AddToSystem(messages, "response_format", form.schema);
}

void ReadSchemaType(Fields* format, OutputForm* form) {
  const std::string type = format->String("type").value_or("");
  if (type == "json_object") {
    // The form alone is what clients ask for in words of their own.
    form->schema = {{"type", "object"}};
  } else if (type == "json_schema") {
    form->schema = format->Required("schema");
    form->shows_schema = true;
    format->Ignore({"name", "description", "strict"});
  } else if (type != "text") {
    throw InvalidField(format->PathOf("type"), "must be text, json_object or json_schema");
  }
  format->RefuseOthers();
}

bool ReadToolChoiceWord(const Json& choice, dsv4::ToolOptions* options) {
  if (choice == "auto") return true;
  options->choice = choice == "none" ? DSV4_TOOL_CHOICE_NONE : DSV4_TOOL_CHOICE_REQUIRED;
  if (choice == "none" || choice == "required") return true;
  if (!choice.is_object())
    throw InvalidField("tool_choice", "must be auto, none, required or a function");
  return false;
}

void AddToSystem(Json* messages, const char* key, Json value) {
  if (messages->front()["role"] != "system")
    messages->insert(messages->begin(), Json{{"role", "system"}, {"content", ""}});
  messages->front()[key] = std::move(value);
}

void CheckContent(const Json& content, const std::string& path,
                  std::initializer_list<const char*> types) {
  if (content.is_string()) return;
  if (!content.is_array()) throw InvalidField(path, "must be a string or a list of parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part = path + "[" + std::to_string(i) + "]";
    Fields fields(content[i], part);
    const auto type = fields.String("type");
    if (type && std::find(types.begin(), types.end(), *type) == types.end())
      throw InvalidRequest(part + ".type", part + ".type: \"" + *type + "\" is not supported");
    fields.RequiredString("text");
  }
}

void CheckMessages(const Json& messages, const std::string& field) {
  if (messages.empty()) throw InvalidField(field, "has no message");
  dsv4::RenderChatTextJson(TextOf(messages));
  const Json& role = messages.back()["role"];
  if (role != "assistant" && role != "system") return;
  const std::string last = field + "[" + std::to_string(messages.size() - 1) + "].role";
  throw InvalidRequest(last, last + ": the assistant does not answer its own or a system message");
}

}  // namespace server
