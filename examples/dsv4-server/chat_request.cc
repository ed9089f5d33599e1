// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chat_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/output_form.h"
#include "examples/dsv4-server/thinking.h"

namespace server {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// The message in the form that the library takes. Members that the library would ignore are
// refused, except those that mean nothing to the model.
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
  if (message.contains("content") && !message["content"].is_null())
    CheckContent(message["content"], fields.PathOf("content"),
                 {"text", "input_text", "output_text"});
  if (const Json* reasoning = fields.Any("reasoning")) {
    if (!message.contains("reasoning_content")) message["reasoning_content"] = *reasoning;
  }
  if (fields.Bool("prefix").value_or(false))
    throw InvalidField(fields.PathOf("prefix"), "is not supported");
  fields.Ignore({"name", "refusal", "annotations"});
  fields.RefuseOthers();
  return message;
}

dsv4::ToolOptions ReadToolChoice(Fields* fields) {
  dsv4::ToolOptions options;
  const Json* choice = fields->Any("tool_choice");
  if (choice == nullptr || ReadToolChoiceWord(*choice, &options)) return options;
  Fields given(*choice, "tool_choice");
  const Json* function = given.Any("function");
  if (given.String("type").value_or("") != "function" || function == nullptr)
    throw InvalidField("tool_choice.type", "must be \"function\"");
  Fields named(*function, "tool_choice.function");
  options.name = named.String("name").value_or("");
  if (options.name.empty()) throw InvalidField("tool_choice.function.name", "is missing");
  named.RefuseOthers();
  given.RefuseOthers();
  return options;
}

void ReadResponseFormat(Fields* fields, OutputForm* form) {
  form->schema_field = "response_format";
  const Json* given = fields->Any("response_format");
  if (given == nullptr) return;
  Fields format(*given, "response_format");
  if (format.String("type") != "json_schema") return ReadSchemaType(&format, form);
  Json schema = format.Required("json_schema");
  format.RefuseOthers();
  if (schema.is_object()) schema["type"] = "json_schema";
  Fields description(schema, "response_format.json_schema");
  ReadSchemaType(&description, form);
}

void ReadForm(const Model& model, Fields* fields, ChatRequest* request, Json* messages) {
  OutputForm form;
  if (const Json* tools = fields->List("tools")) form.tools = *tools;
  form.choice = ReadToolChoice(fields);
  ReadResponseFormat(fields, &form);
  request->turn.one_call = !fields->Bool("parallel_tool_calls").value_or(true);
  ApplyForm(model, form, &request->prompt, &request->turn, messages);
}

void ReadLimits(Fields* fields, dsv4::Sampling* sampling) {
  const auto old_name = fields->Integer("max_tokens", 1, kMostTokens);
  const auto new_name = fields->Integer("max_completion_tokens", 1, kMostTokens);
  if (old_name && new_name && *old_name != *new_name)
    throw InvalidField("max_tokens", "contradicts max_completion_tokens");
  sampling->max_tokens = new_name.value_or(old_name.value_or(0));
}

}  // namespace

Json ReadMessages(Fields* fields) {
  const Json* given = fields->Any("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw InvalidField("messages", "must be a list of one message or more");
  Json messages = Json::array();
  for (const Json& message : *given)
    messages.push_back(MessageOf(message, "messages[" + std::to_string(messages.size()) + "]"));
  CheckMessages(messages, "messages");
  return messages;
}

dsv4::ChatOptions ReadThinking(const Model& model, Fields* fields, int64_t* budget) {
  Thinking thinking;
  if (const Json* given = fields->Any("thinking")) {
    Fields options(*given, "thinking");
    const std::string type = options.String("type").value_or("");
    if (type != "enabled" && type != "disabled")
      throw InvalidField("thinking.type", "must be enabled or disabled");
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
  ReadCandidates(model, &fields, &request.common);
  Prompt* prompt = &request.prompt;
  prompt->sampling = request.common.sampling;
  prompt->cache_salt = request.common.cache_salt;
  Json messages = ReadMessages(&fields);
  prompt->chat = ReadThinking(model, &fields, &prompt->sampling.max_thinking_tokens);
  ReadLimits(&fields, &prompt->sampling);
  request.log_probs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, 20);
  if (top && !request.log_probs) throw InvalidField("top_logprobs", "needs \"logprobs\": true");
  request.top_log_probs = static_cast<size_t>(top.value_or(0));
  if (request.log_probs)
    prompt->sampling.log_probs = static_cast<int32_t>(std::max<size_t>(request.top_log_probs, 1));
  request.turn.thinks = prompt->chat.thinking != DSV4_THINKING_OFF;
  ReadForm(model, &fields, &request, &messages);
  fields.RefuseOthers();
  prompt->messages = TextOf(messages);
  return request;
}

}  // namespace server
