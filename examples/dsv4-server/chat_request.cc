// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chat_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// Content is a text or parts of text: the model sees nothing else.
void CheckContent(const Json& content, const std::string& path) {
  if (!content.is_array()) return;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part = path + "[" + std::to_string(i) + "]";
    Fields fields(content[i], part);
    const std::string type = fields.String("type").value_or("text");
    if (type != "text" && type != "input_text" && type != "output_text")
      throw InvalidRequest(part + ".type", part + ".type: \"" + type + "\" is not supported");
    if (!fields.String("text")) throw InvalidRequest(part + ".text", part + ".text is missing");
  }
}

// The message as the library takes it. What it would ignore is refused, but for what says nothing
// to the model.
Json MessageOf(const Json& given, const std::string& path) {
  Fields fields(given, path);
  Json message = Json::object();
  std::string role = fields.String("role").value_or("");
  // OpenAI's word for system. The family's own developer messages are something else.
  if (role == "developer") role = "system";
  message["role"] = role;
  for (const char* name : {"content", "reasoning_content", "tool_calls", "tool_call_id", "task"}) {
    if (const Json* value = fields.Any(name)) message[name] = *value;
  }
  if (!message.contains("content") && role == "assistant") message["content"] = nullptr;
  if (message.contains("content")) CheckContent(message["content"], fields.PathOf("content"));
  if (const Json* reasoning = fields.Any("reasoning")) {
    if (!message.contains("reasoning_content")) message["reasoning_content"] = *reasoning;
  }
  if (fields.Bool("prefix").value_or(false))
    throw InvalidRequest(fields.PathOf("prefix"), fields.PathOf("prefix") + " is not supported");
  fields.Ignore({"name", "refusal", "annotations"});
  fields.RefuseOthers();
  return message;
}

// Whether, and how hard, the model is to think: the ways in which clients say it.
class ThinkingFields {
 public:
  void Switch(const std::string& field, bool on) {
    if (switch_ && *switch_ != on) Refuse(field);
    switch_ = on;
  }

  void Effort(const std::string& field, const std::string& effort) {
    static constexpr std::pair<const char*, dsv4_thinking_mode> kEfforts[] = {
        {"none", DSV4_THINKING_OFF},   {"minimal", DSV4_THINKING_LOW}, {"low", DSV4_THINKING_LOW},
        {"medium", DSV4_THINKING_LOW}, {"high", DSV4_THINKING_HIGH},   {"xhigh", DSV4_THINKING_MAX},
        {"max", DSV4_THINKING_MAX}};
    for (const auto& [name, mode] : kEfforts) {
      if (effort != name) continue;
      if (effort_ && *effort_ != mode) Refuse(field);
      effort_ = mode;
      field_of_effort_ = field;
      return;
    }
    throw InvalidRequest(field, field + ": \"" + effort +
                                    "\" is not none, minimal, low, medium, high, xhigh or max");
  }

  dsv4_thinking_mode Mode(dsv4_thinking_mode otherwise) const {
    if (effort_) {
      if (switch_ && *switch_ != (*effort_ != DSV4_THINKING_OFF)) Refuse(field_of_effort_);
      return *effort_;
    }
    if (!switch_) return otherwise;
    if (!*switch_) return DSV4_THINKING_OFF;
    return otherwise == DSV4_THINKING_OFF ? DSV4_THINKING_LOW : otherwise;
  }

 private:
  [[noreturn]] static void Refuse(const std::string& field) {
    throw InvalidRequest(field, field + " contradicts another field about thinking");
  }

  std::optional<bool> switch_;
  std::optional<dsv4_thinking_mode> effort_;
  std::string field_of_effort_;
};

dsv4::ToolOptions ReadToolChoice(Fields* fields) {
  dsv4::ToolOptions options;
  const Json* choice = fields->Any("tool_choice");
  if (choice == nullptr || *choice == "auto") return options;
  if (*choice == "none") {
    options.choice = DSV4_TOOL_CHOICE_NONE;
    return options;
  }
  options.choice = DSV4_TOOL_CHOICE_REQUIRED;
  if (*choice == "required") return options;
  if (!choice->is_object())
    throw InvalidRequest("tool_choice", "tool_choice must be auto, none, required or a function");
  Fields given(*choice, "tool_choice");
  const Json* function = given.Any("function");
  if (given.String("type").value_or("") != "function" || function == nullptr)
    throw InvalidRequest("tool_choice.type", "tool_choice.type must be \"function\"");
  Fields named(*function, "tool_choice.function");
  options.name = named.String("name").value_or("");
  if (options.name.empty())
    throw InvalidRequest("tool_choice.function.name", "tool_choice.function.name is missing");
  named.RefuseOthers();
  given.RefuseOthers();
  return options;
}

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

// Returns the schema of the answer, null for one that is free.
Json ReadResponseFormat(Fields* fields) {
  const Json* given = fields->Any("response_format");
  if (given == nullptr) return nullptr;
  Fields format(*given, "response_format");
  const std::string type = format.String("type").value_or("");
  Json schema = nullptr;
  if (type == "json_object") {
    schema = {{"type", "object"}};
  } else if (type == "json_schema") {
    const Json* described = format.Any("json_schema");
    if (described == nullptr)
      throw InvalidRequest("response_format.json_schema", "response_format.json_schema is missing");
    Fields description(*described, "response_format.json_schema");
    const Json* written = description.Any("schema");
    if (written == nullptr)
      throw InvalidRequest("response_format.json_schema.schema",
                           "response_format.json_schema.schema is missing");
    schema = *written;
    description.Ignore({"name", "description", "strict"});
    description.RefuseOthers();
  } else if (type != "text") {
    throw InvalidRequest("response_format.type",
                         "response_format.type must be text, json_object or json_schema");
  }
  format.RefuseOthers();
  return schema;
}

void ReadFormats(const Model& model, Fields* fields, ChatRequest* request, Json* messages) {
  const Json* tools = fields->Any("tools");
  if (tools != nullptr && !tools->is_array()) throw InvalidRequest("tools", "tools must be a list");
  const bool has_tools = tools != nullptr && !tools->empty();
  const dsv4::ToolOptions choice = ReadToolChoice(fields);
  if (!has_tools && choice.choice == DSV4_TOOL_CHOICE_REQUIRED)
    throw InvalidRequest("tool_choice", "tool_choice asks for a call, and there are no tools");
  const Json schema = ReadResponseFormat(fields);
  if (has_tools && !schema.is_null() && choice.choice != DSV4_TOOL_CHOICE_NONE)
    throw InvalidRequest("response_format",
                         "response_format with tools needs \"tool_choice\": \"none\"");
  request->no_calls = has_tools && choice.choice == DSV4_TOOL_CHOICE_NONE;
  request->one_call = !fields->Bool("parallel_tool_calls").value_or(true);
  dsv4::Grammar* grammar = &request->prompt.sampling.grammar;
  if (has_tools) {
    *grammar = ToolGrammar(model.engine, *tools, choice);
    AddToSystem(messages, "tools", *tools);
  }
  if (schema.is_null()) return;
  *grammar =
      OpenGrammar("response_format", [&] { return model.engine.SchemaGrammar(TextOf(schema)); });
  // The form alone is what clients ask for in words of their own.
  if (fields->Any("response_format")->contains("json_schema"))
    AddToSystem(messages, "response_format", schema);
}

void ReadLimits(Fields* fields, dsv4::Sampling* sampling) {
  const auto old_name = fields->Integer("max_tokens", 1, kMostTokens);
  const auto new_name = fields->Integer("max_completion_tokens", 1, kMostTokens);
  if (old_name && new_name && *old_name != *new_name)
    throw InvalidRequest("max_tokens", "max_tokens contradicts max_completion_tokens");
  sampling->max_tokens = new_name.value_or(old_name.value_or(0));
}

}  // namespace

Json ReadMessages(Fields* fields) {
  const Json* given = fields->Any("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw InvalidRequest("messages", "messages must be a list of one message or more");
  Json messages = Json::array();
  for (const Json& message : *given)
    messages.push_back(MessageOf(message, "messages[" + std::to_string(messages.size()) + "]"));
  // What is wrong in them is told by the numbers that the client knows.
  dsv4::RenderChatTextJson(TextOf(messages));
  const std::string last = "messages[" + std::to_string(messages.size() - 1) + "]";
  const Json& role = messages.back()["role"];
  if (role == "assistant" || role == "system")
    throw InvalidRequest(last + ".role",
                         last + ".role: the assistant does not answer its own or a system message");
  return messages;
}

void AddToSystem(Json* messages, const char* key, Json value) {
  if (messages->front()["role"] != "system")
    messages->insert(messages->begin(), Json{{"role", "system"}, {"content", ""}});
  messages->front()[key] = std::move(value);
}

dsv4::ChatOptions ReadThinking(const Model& model, Fields* fields, int64_t* budget) {
  ThinkingFields thinking;
  if (const Json* given = fields->Any("thinking")) {
    Fields options(*given, "thinking");
    const std::string type = options.String("type").value_or("");
    if (type != "enabled" && type != "disabled")
      throw InvalidRequest("thinking.type", "thinking.type must be enabled or disabled");
    thinking.Switch("thinking.type", type == "enabled");
    *budget = options.Integer("budget_tokens", 1, kMostTokens).value_or(0);
    options.RefuseOthers();
  }
  if (const Json* given = fields->Any("chat_template_kwargs")) {
    Fields options(*given, "chat_template_kwargs");
    for (const char* name : {"thinking", "enable_thinking"}) {
      if (const auto on = options.Bool(name)) thinking.Switch(options.PathOf(name), *on);
    }
    if (const auto effort = options.String("reasoning_effort"))
      thinking.Effort(options.PathOf("reasoning_effort"), *effort);
    options.RefuseOthers();
  }
  if (const auto effort = fields->String("reasoning_effort"))
    thinking.Effort("reasoning_effort", *effort);
  dsv4::ChatOptions chat;
  chat.thinking = thinking.Mode(model.thinking);
  chat.encoder = model.encoder;
  return chat;
}

ChatRequest ReadChat(const Model& model, const Json& body) {
  Fields fields(body);
  ChatRequest request;
  request.common = ReadCommon(model, &fields);
  Prompt* prompt = &request.prompt;
  prompt->sampling = request.common.sampling;
  prompt->cache_salt = request.common.cache_salt;
  Json messages = ReadMessages(&fields);
  prompt->chat = ReadThinking(model, &fields, &prompt->sampling.max_thinking_tokens);
  ReadLimits(&fields, &prompt->sampling);
  request.log_probs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, 20);
  if (top && !request.log_probs)
    throw InvalidRequest("top_logprobs", "top_logprobs needs \"logprobs\": true");
  request.top_log_probs = static_cast<size_t>(top.value_or(0));
  if (request.log_probs)
    prompt->sampling.log_probs = static_cast<int32_t>(std::max<size_t>(request.top_log_probs, 1));
  ReadFormats(model, &fields, &request, &messages);
  fields.RefuseOthers();
  prompt->messages = TextOf(messages);
  return request;
}

}  // namespace server
