// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/output_form.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/content.h"
#include "examples/dsv4-server/messages_form.h"

namespace server {
namespace {

// The first argument of errors in grammars is the source that is given to the library.
template <class Function>
dsv4::Grammar OpenGrammar(const Model& model, const std::string& field, Function&& open) {
  try {
    return open();
  } catch (const dsv4::Error& error) {
    if (model.quick_grammars && error.code() == DSV4_ERR_UNSUPPORTED) throw SlowGrammar();
    ApiError failure = CurrentApiError();
    failure.param = field;
    failure.message = field + ": " + failure.message;
    throw failure;
  }
}

bool IsStrict(const Json& tool) {
  const Json& function = tool["function"];
  return function.contains("strict") && function["strict"] == true;
}

// As the grammar takes them: that a function is strict is checked here.
Json WithoutStrict(Json tools) {
  for (Json& tool : tools) tool["function"].erase("strict");
  return tools;
}

// The index in "tools#/INDEX/...".
size_t ToolOf(const std::string& place) {
  size_t index = 0;
  const size_t begin = std::string("tools#/").size();
  std::from_chars(place.data() + std::min(begin, place.size()), place.data() + place.size(), index);
  return index;
}

void CheckEnforced(const OutputForm& form, const dsv4::Grammar& grammar) {
  for (const Json& one : Json::parse(grammar.unenforced_json())) {
    const std::string place = one["place"];
    const std::string keyword = place.substr(place.rfind('/') + 1);
    if (keyword == "uniqueItems" || keyword == "format") continue;
    const bool of_tools = place.starts_with("tools#");
    const bool strict = of_tools ? place == "tools#"
                                       ? std::any_of(form.tools.begin(), form.tools.end(), IsStrict)
                                       : IsStrict(form.tools.at(ToolOf(place)))
                                 : form.strict;
    if (!strict) continue;
    const std::string& field = of_tools ? "tools" : form.schema_field;
    throw InvalidRequest(field, field + ": " + place + ": " + one["reason"].get<std::string>());
  }
}

}  // namespace

void ApplyForm(const Model& model, const OutputForm& form, Prompt* prompt, TurnOptions* turn,
               Json* messages) {
  const bool has_tools = !form.tools.empty(), has_schema = !form.schema.is_null();
  if (!has_tools && form.choice.choice == DSV4_TOOL_CHOICE_REQUIRED)
    throw InvalidField("tool_choice", "asks for a call, and there are no tools");
  if (has_schema && messages->back()["role"] == "assistant")
    throw InvalidField(form.schema_field,
                       "with a last message of the assistant is not supported: what is begun may "
                       "not match it");
  turn->no_calls = has_tools && form.choice.choice == DSV4_TOOL_CHOICE_NONE;
  dsv4::ToolOptions options = form.choice;
  options.lenient = true;
  options.quick = model.quick_grammars;
  dsv4::Grammar* grammar = &prompt->sampling.grammar;
  const std::string tools = TextOf(WithoutStrict(form.tools));
  if (has_schema) {
    *grammar = OpenGrammar(model, form.schema_field, [&] {
      return model.engine.AnswerGrammar(has_tools ? tools : "", TextOf(form.schema), options);
    });
  } else if (has_tools) {
    *grammar =
        OpenGrammar(model, "tools", [&] { return model.engine.ToolGrammar(tools, options); });
  }
  CheckEnforced(form, *grammar);
  if (has_tools) AddToSystem(messages, "tools", form.tools);
  if (has_schema && form.shows_schema) AddToSystem(messages, "response_format", form.schema);
}

std::string UnenforcedPlaces(const dsv4::Grammar& grammar) {
  constexpr size_t kLongest = 2000;
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string places;
  for (const Json& one : Json::parse(grammar.unenforced_json())) {
    std::string place = places.empty() ? "" : ", ";
    for (const char c : one["place"].get<std::string>()) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte > ' ' && byte < 0x7f && c != ',' && c != '%')
        place += c;
      else
        place.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
    if (places.size() + place.size() > kLongest) return places + ", ...";
    places += place;
  }
  return places;
}

void AddFunction(Fields* function, OutputForm* form) {
  Json added = {{"name", function->RequiredString("name")}};
  for (const char* name : {"description", "parameters", "strict"}) {
    if (const Json* value = function->Any(name)) added[name] = *value;
  }
  function->Bool("strict");
  form->tools.push_back({{"type", "function"}, {"function", std::move(added)}});
}

void LeaveOutTool(const Fields& tool, const std::string& type) {
  const std::string tools = "tools of the type ", plain = PlainType(type);
  if (tool.rules().strict)
    throw InvalidRequest(tool.PathOf("type"), tool.PathOf("type") + ": " + tools + "\"" + plain +
                                                  "\" are not supported");
  tool.rules().Say(tools + plain + " are left out");
}

void ReadSchemaType(Fields* format, OutputForm* form) {
  const std::string type = format->String("type").value_or("");
  if (type == "json_object") {
    // The form alone is what clients ask for in words of their own.
    form->schema = {{"type", "object"}};
  } else if (type == "json_schema") {
    form->schema = format->Required("schema");
    form->strict = format->Bool("strict").value_or(false);
    form->shows_schema = true;
    format->Ignore({"name", "description"});
  } else if (type != "text") {
    throw InvalidField(format->PathOf("type"), "must be text, json_object or json_schema");
  }
  format->LeaveOutOthers();
}

bool ReadToolChoiceWord(const Json& choice, dsv4::ToolOptions* options) {
  if (choice == "auto") return true;
  options->choice = choice == "none" ? DSV4_TOOL_CHOICE_NONE : DSV4_TOOL_CHOICE_REQUIRED;
  if (choice == "none" || choice == "required") return true;
  if (!choice.is_object())
    throw InvalidField("tool_choice", "must be auto, none, required or a function");
  return false;
}

}  // namespace server
