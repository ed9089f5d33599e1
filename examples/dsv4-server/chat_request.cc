// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chat_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/content.h"
#include "examples/dsv4-server/messages_form.h"
#include "examples/dsv4-server/output_form.h"
#include "examples/dsv4-server/thinking.h"

namespace server {
namespace {

constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();

// The calls of a message, as the library takes them.
Json CallsOf(const FieldRules& rules, const Json& given, const std::string& path) {
  if (!given.is_array()) throw InvalidField(path, "must be a list");
  Json calls = Json::array();
  for (size_t i = 0; i < given.size(); ++i) {
    Fields call(rules, given[i], path + "[" + std::to_string(i) + "]");
    if (const std::string type = call.String("type").value_or("function"); type != "function")
      throw InvalidRequest(call.PathOf("type"), call.PathOf("type") + ": calls of the type \"" +
                                                    PlainType(type) + "\" are not supported");
    Fields function = call.Sub(call.Required("function"), "function");
    const Json* arguments = function.Any("arguments");
    calls.push_back(
        {{"id", call.String("id").value_or("")},
         {"type", "function"},
         {"function",
          {{"name", function.RequiredString("name")},
           {"arguments", arguments == nullptr ? Json("{}") : ArgumentsOf(*arguments)}}}});
    call.Ignore({"index"});
    function.LeaveOutOthers();
    call.LeaveOutOthers();
  }
  return calls;
}

// The message in the form that the library takes. `last`: it is the last one.
Json MessageOf(const FieldRules& rules, const Json& given, const std::string& path, bool last) {
  Fields fields(rules, given, path);
  Json message = Json::object();
  std::string role = fields.RequiredString("role");
  // OpenAI's word for system. The family's own developer messages are something else.
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool" &&
      role != "latest_reminder")
    throw InvalidRequest(fields.PathOf("role"),
                         fields.PathOf("role") + ": the role \"" + role + "\" is not supported");
  message["role"] = role;
  for (const char* name : {"tool_call_id", "task"}) {
    if (const Json* value = fields.Any(name)) message[name] = *value;
  }
  const Json* content = fields.Any("content");
  if (content != nullptr)
    message["content"] = ReadContent(rules, *content, fields.PathOf("content"));
  else if (role == "assistant" || role == "tool")
    message["content"] = nullptr;
  const auto refusal = fields.String("refusal");
  if (role == "assistant") {
    if (content == nullptr && refusal) message["content"] = *refusal;
    const Json* reasoning = fields.Any("reasoning_content");
    if (const Json* other = fields.Any("reasoning"); reasoning == nullptr) reasoning = other;
    if (reasoning != nullptr && reasoning->is_string()) message["reasoning_content"] = *reasoning;
    if (const Json* calls = fields.Any("tool_calls"); calls != nullptr && !calls->empty())
      message["tool_calls"] = CallsOf(rules, *calls, fields.PathOf("tool_calls"));
    if (fields.Any("function_call") != nullptr)
      throw InvalidField(fields.PathOf("function_call"),
                         "is not supported; calls are given as tool_calls");
  } else if (const Json* calls = fields.Any("tool_calls"); calls != nullptr && !calls->empty()) {
    throw InvalidField(fields.PathOf("tool_calls"), "belongs to messages of the assistant");
  }
  const bool prefix = fields.Bool("prefix").value_or(false);
  if (prefix && (role != "assistant" || !last))
    throw InvalidField(fields.PathOf("prefix"), "belongs to a last message of the assistant");
  fields.Ignore({"annotations", "audio", "id", "name", "type"});
  fields.LeaveOutOthers();
  return message;
}

void ReadTools(Fields* fields, OutputForm* form) {
  const Json* tools = fields->List("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    Fields tool = fields->Sub((*tools)[i], "tools[" + std::to_string(i) + "]");
    const std::string type = tool.String("type").value_or("function");
    // The client waits for calls of it.
    if (type == "custom")
      throw InvalidRequest(tool.PathOf("type"),
                           tool.PathOf("type") + ": custom tools are not supported");
    if (type != "function") {
      LeaveOutTool(tool, type);
      continue;
    }
    // Bare functions are those of the Responses API.
    const Json* function = tool.Any("function");
    Fields members = function == nullptr ? tool : tool.Sub(*function, "function");
    AddFunction(&members, form);
    members.Ignore({"type"});
    members.LeaveOutOthers();
    if (function != nullptr) tool.LeaveOutOthers();
  }
}

dsv4::ToolOptions ReadToolChoice(Fields* fields) {
  dsv4::ToolOptions options;
  const Json* choice = fields->Any("tool_choice");
  if (choice == nullptr || ReadToolChoiceWord(*choice, &options)) return options;
  Fields given = fields->Sub(*choice, "tool_choice");
  const Json* function = given.Any("function");
  if (given.String("type").value_or("") != "function")
    throw InvalidField("tool_choice.type", "must be function; others are not supported");
  Fields named = function == nullptr ? given : given.Sub(*function, "function");
  options.name = named.String("name").value_or("");
  if (options.name.empty()) throw InvalidField("tool_choice.function.name", "is missing");
  if (function != nullptr) named.LeaveOutOthers();
  given.Ignore({"name"});
  given.LeaveOutOthers();
  return options;
}

void ReadResponseFormat(Fields* fields, OutputForm* form) {
  form->schema_field = "response_format";
  const Json* given = fields->Any("response_format");
  if (given == nullptr) return;
  Fields format = fields->Sub(*given, "response_format");
  if (format.String("type") != "json_schema") return ReadSchemaType(&format, form);
  Json schema = format.Required("json_schema");
  format.LeaveOutOthers();
  if (schema.is_object()) schema["type"] = "json_schema";
  Fields description = format.Sub(schema, "json_schema");
  ReadSchemaType(&description, form);
}

void ReadForm(const Model& model, Fields* fields, ChatRequest* request, Json* messages) {
  OutputForm form;
  ReadTools(fields, &form);
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

// What would change the answer, or ask for another kind of it.
void RefuseUnsupported(Fields* fields, bool begun) {
  fields->RefuseUnless({{"functions"},
                        {"function_call", {"none", "auto"}},
                        // Not {Json}: for clang that is the array itself.
                        {"modalities", std::vector<Json>(1, Json::array({"text"}))},
                        {"documents"},
                        {"chat_template"},
                        {"echo"},
                        {"plugins"},
                        {"prompt_logprobs", {0}},
                        {"web_search_options"}});
  if (fields->Bool("continue_final_message").value_or(begun) != begun)
    throw InvalidField("continue_final_message", begun ? "false is not supported after a last "
                                                         "message of the assistant"
                                                       : "needs a last message of the assistant");
  if (!fields->Bool("add_generation_prompt").value_or(true) && !begun)
    throw InvalidField("add_generation_prompt", "false is not supported");
  fields->Ignore({"audio", "prediction", "verbosity"});
}

}  // namespace

Json ReadMessages(Fields* fields, bool* begun) {
  const Json* given = fields->Any("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw InvalidField("messages", "must be a list of one message or more");
  Json messages = Json::array();
  for (const Json& message : *given)
    messages.push_back(MessageOf(fields->rules(), message,
                                 "messages[" + std::to_string(messages.size()) + "]",
                                 messages.size() + 1 == given->size()));
  *begun = FinishMessages(&messages, "messages");
  return messages;
}

dsv4::ChatOptions ReadThinking(const Model& model, Fields* fields, int64_t* budget, bool* hidden) {
  Thinking thinking;
  if (const Json* given = fields->Any("thinking")) {
    Fields options = fields->Sub(*given, "thinking");
    const std::string type = options.String("type").value_or("");
    if (type != "enabled" && type != "adaptive" && type != "disabled")
      throw InvalidField("thinking.type", "must be enabled, adaptive or disabled");
    thinking.Switch("thinking.type", type != "disabled");
    *budget = options.Integer("budget_tokens", 1, kMostTokens).value_or(0);
    options.Ignore({"display"});
    options.LeaveOutOthers();
  }
  if (const Json* given = fields->Any("chat_template_kwargs")) {
    Fields options = fields->Sub(*given, "chat_template_kwargs");
    for (const char* name : {"thinking", "enable_thinking"}) {
      if (const auto on = options.Bool(name)) thinking.Switch(options.PathOf(name), *on);
    }
    if (const auto effort = options.String("reasoning_effort"))
      thinking.Effort(options.PathOf("reasoning_effort"), *effort);
    options.LeaveOutOthers();
  }
  if (const auto effort = fields->String("reasoning_effort"))
    thinking.Effort("reasoning_effort", *effort);
  // OpenRouter's.
  if (const Json* given = fields->Any("reasoning")) {
    Fields options = fields->Sub(*given, "reasoning");
    if (const auto on = options.Bool("enabled")) thinking.Switch(options.PathOf("enabled"), *on);
    if (const auto effort = options.String("effort"))
      thinking.Effort(options.PathOf("effort"), *effort);
    if (const auto most = options.Integer("max_tokens", 1, kMostTokens)) *budget = *most;
    *hidden |= options.Bool("exclude").value_or(false);
    options.Ignore({"summary", "generate_summary"});
    options.LeaveOutOthers();
  }
  *hidden |= !fields->Bool("include_reasoning").value_or(true);
  dsv4::ChatOptions chat;
  chat.thinking = thinking.Mode(model.thinking);
  chat.encoder = model.encoder;
  return chat;
}

ChatRequest ReadChat(const Model& model, const Json& body) {
  Fields fields(model.rules, body);
  ChatRequest request;
  request.common = ReadCommon(model, &fields);
  ReadCandidates(model, &fields, &request.common);
  Prompt* prompt = &request.prompt;
  prompt->sampling = request.common.sampling;
  prompt->cache_salt = request.common.cache_salt;
  bool begun = false;
  Json messages = ReadMessages(&fields, &begun);
  prompt->chat = ReadThinking(model, &fields, &prompt->sampling.max_thinking_tokens,
                              &request.turn.hides_reasoning);
  ReadLimits(&fields, &prompt->sampling);
  request.log_probs = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, 20);
  if (top && !request.log_probs) throw InvalidField("top_logprobs", "needs \"logprobs\": true");
  request.top_log_probs = static_cast<size_t>(top.value_or(0));
  if (request.log_probs)
    prompt->sampling.log_probs = static_cast<int32_t>(std::max<size_t>(request.top_log_probs, 1));
  // An answer that was begun has no reasoning.
  request.turn.thinks = !begun && prompt->chat.thinking != DSV4_THINKING_OFF;
  ReadForm(model, &fields, &request, &messages);
  RefuseUnsupported(&fields, begun);
  fields.LeaveOutOthers();
  prompt->messages = TextOf(messages);
  return request;
}

}  // namespace server
