// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/messages_request.h"

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

// Reads the blocks of one message into messages as the library takes them: results of tools are
// messages of their own.
class Blocks {
 public:
  Blocks(const FieldRules& rules, std::string role, Json* messages)
      : rules_(rules), role_(std::move(role)), messages_(messages) {}

  void Add(const Json& block, const std::string& path) {
    Fields fields(rules_, block, path);
    const std::string type = fields.String("type").value_or("");
    // Every prompt is cached here.
    fields.Ignore({"cache_control", "citations"});
    if (type == "tool_result" && role_ == "user") {
      AddResult(&fields);
    } else if (type == "thinking" && role_ == "assistant") {
      Json& message = Message();
      message["reasoning_content"] =
          message.value("reasoning_content", "") + fields.RequiredString("thinking");
      fields.Ignore({"signature"});
    } else if (type == "tool_use" && role_ == "assistant") {
      AddCall(&fields);
    } else if (type == "text" || role_ != "assistant") {
      AddText(ReadPart(rules_, block, path));
      fields.Ignore({"text", "source", "title", "context", "content"});
    } else if (rules_.strict) {
      throw InvalidRequest(path + ".type", path + ".type: \"" + type + "\" is not supported in a " +
                                               role_ + " message");
    } else {
      // What servers did and wrote in the assistant's turn. In a text it would be the model's own.
      rules_.Say("blocks of the type " + PlainType(type) +
                 " in messages of the assistant are left "
                 "out");
      return;
    }
    fields.LeaveOutOthers();
  }

  void AddText(const std::string& text) {
    Message()["content"].push_back({{"type", "text"}, {"text", text}});
  }

  void End() {
    if (!message_.is_null()) messages_->push_back(std::exchange(message_, nullptr));
  }

 private:
  Json& Message() {
    if (message_.is_null()) message_ = {{"role", role_}, {"content", Json::array()}};
    return message_;
  }

  void AddResult(Fields* fields) {
    End();
    Json result = {{"role", "tool"}, {"tool_call_id", fields->RequiredString("tool_use_id")}};
    const Json* content = fields->Any("content");
    result["content"] =
        content == nullptr ? Json("") : ReadContent(rules_, *content, fields->PathOf("content"));
    fields->Bool("is_error");  // the content says so
    messages_->push_back(std::move(result));
  }

  void AddCall(Fields* fields) {
    const Json* input = fields->Any("input");
    if (input != nullptr && !input->is_object())
      throw InvalidField(fields->PathOf("input"), "must be an object");
    Message()["tool_calls"].push_back(
        {{"id", fields->RequiredString("id")},
         {"type", "function"},
         {"function",
          {{"name", fields->RequiredString("name")},
           {"arguments", input == nullptr ? "{}" : TextOf(*input)}}}});
    fields->Ignore({"caller"});
  }

  const FieldRules& rules_;
  const std::string role_;
  Json* const messages_;
  Json message_ = nullptr;
};

void AddMessage(const FieldRules& rules, const Json& given, const std::string& path,
                Json* messages) {
  Fields fields(rules, given, path);
  const std::string role = fields.RequiredString("role");
  if (role != "user" && role != "assistant" && role != "system")
    throw InvalidRequest(path + ".role",
                         path + ".role: the role \"" + role + "\" is not supported");
  const Json* content = fields.Any("content");
  fields.Ignore({"id", "type"});
  fields.LeaveOutOthers();
  Blocks blocks(rules, role, messages);
  if (content != nullptr && content->is_string()) {
    blocks.AddText(content->get<std::string>());
  } else if (content != nullptr && content->is_array()) {
    for (size_t i = 0; i < content->size(); ++i)
      blocks.Add((*content)[i], path + ".content[" + std::to_string(i) + "]");
  } else {
    throw InvalidField(path + ".content", "must be a string or a list of blocks");
  }
  blocks.End();
}

// Messages as the library takes them, the system's first. *begun: the last one is the beginning of
// the answer.
Json ReadConversation(Fields* fields, bool* begun) {
  Json messages = Json::array();
  if (const Json* system = fields->Any("system"))
    messages.push_back(
        {{"role", "system"}, {"content", ReadContent(fields->rules(), *system, "system")}});
  const Json* given = fields->Any("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw InvalidField("messages", "must be a list of one message or more");
  for (size_t i = 0; i < given->size(); ++i)
    AddMessage(fields->rules(), (*given)[i], "messages[" + std::to_string(i) + "]", &messages);
  *begun = FinishMessages(&messages, "messages");
  return messages;
}

// Tools that the client runs. Those of Anthropic's servers, and those that its models were trained
// on, have a type and no schema.
void ReadTools(Fields* fields, OutputForm* form) {
  const Json* tools = fields->List("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    Fields tool = fields->Sub((*tools)[i], "tools[" + std::to_string(i) + "]");
    const std::string type = tool.String("type").value_or("custom");
    if (type != "custom") {
      LeaveOutTool(tool, type);
      continue;
    }
    Json function = {{"name", tool.RequiredString("name")}};
    if (const Json* description = tool.Any("description")) function["description"] = *description;
    if (const Json* schema = tool.Any("input_schema")) function["parameters"] = *schema;
    if (const auto strict = tool.Bool("strict")) function["strict"] = *strict;
    tool.Ignore({"allowed_callers", "cache_control", "defer_loading", "eager_input_streaming",
                 "input_examples"});
    tool.LeaveOutOthers();
    form->tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

void ReadToolChoice(Fields* fields, OutputForm* form, TurnOptions* turn) {
  const Json* given = fields->Any("tool_choice");
  if (given == nullptr) return;
  Fields choice = fields->Sub(*given, "tool_choice");
  const std::string type = choice.String("type").value_or("");
  if (type == "none") {
    form->choice.choice = DSV4_TOOL_CHOICE_NONE;
  } else if (type == "any" || type == "tool") {
    form->choice.choice = DSV4_TOOL_CHOICE_REQUIRED;
    if (type == "tool") form->choice.name = choice.String("name").value_or("");
    if (type == "tool" && form->choice.name.empty())
      throw InvalidField("tool_choice.name", "is missing");
  } else if (type != "auto") {
    throw InvalidField("tool_choice.type", "must be auto, any, tool or none");
  }
  turn->one_call = choice.Bool("disable_parallel_tool_use").value_or(false);
  choice.LeaveOutOthers();
}

// Whether the model thinks, and what its answer is held to.
void ReadConfig(const Model& model, Fields* fields, MessagesRequest* request, OutputForm* form) {
  Thinking thinking;
  bool off = false;
  if (const Json* given = fields->Any("thinking")) {
    Fields options = fields->Sub(*given, "thinking");
    const std::string type = options.String("type").value_or("");
    if (type != "enabled" && type != "adaptive" && type != "disabled")
      throw InvalidField("thinking.type", "must be enabled, adaptive or disabled");
    off = type == "disabled";
    thinking.Switch("thinking.type", !off);
    request->prompt.sampling.max_thinking_tokens =
        options.Integer("budget_tokens", 1, kMostTokens).value_or(0);
    options.Ignore({"display"});
    options.LeaveOutOthers();
  }
  form->schema_field = "output_config.format";
  if (const Json* given = fields->Any("output_config")) {
    Fields config = fields->Sub(*given, "output_config");
    // Without thinking, effort is about the length of the answer.
    if (const auto effort = config.String("effort"); effort && !off)
      thinking.Effort("output_config.effort", *effort);
    if (const Json* schema = config.Any("format")) {
      Fields format = config.Sub(*schema, "format");
      ReadSchemaType(&format, form);
    }
    config.Ignore({"task_budget"});
    config.LeaveOutOthers();
  }
  // The name of the same before.
  if (const Json* schema = fields->Any("output_format")) {
    if (!form->schema.is_null())
      throw InvalidField("output_format", "and output_config.format exclude each other");
    form->schema_field = "output_format";
    Fields format = fields->Sub(*schema, "output_format");
    ReadSchemaType(&format, form);
  }
  // Anthropic holds answers to the schema.
  form->strict = !form->schema.is_null();
  request->prompt.chat.thinking = thinking.Mode(model.thinking);
  request->prompt.chat.encoder = model.encoder;
  request->turn.thinks = request->prompt.chat.thinking != DSV4_THINKING_OFF;
}

// All but the limit of tokens.
MessagesRequest ReadRequest(const Model& model, Fields* fields) {
  MessagesRequest request;
  request.common = ReadCommon(model, fields);
  for (std::string& stop : fields->Strings("stop_sequences"))
    request.common.sampling.stop_strings.push_back(std::move(stop));
  request.prompt.sampling = request.common.sampling;
  request.prompt.cache_salt = request.common.cache_salt;
  bool begun = false;
  Json messages = ReadConversation(fields, &begun);
  OutputForm form;
  ReadConfig(model, fields, &request, &form);
  request.turn.thinks &= !begun;  // an answer that was begun has no reasoning
  ReadTools(fields, &form);
  ReadToolChoice(fields, &form, &request.turn);
  ApplyForm(model, form, &request.prompt, &request.turn, &messages);
  request.prompt.messages = TextOf(messages);
  fields->RefuseUnless({{"mcp_servers"}, {"container"}});
  // Edits shorten a conversation where it would be too long. Here all of it is kept.
  fields->Ignore({"betas", "context_management", "inference_geo", "speed"});
  return request;
}

}  // namespace

MessagesRequest ReadMessagesApi(const Model& model, const Json& body) {
  Fields fields(model.rules, body);
  MessagesRequest request = ReadRequest(model, &fields);
  const auto max_tokens = fields.Integer("max_tokens", 1, kMostTokens);
  if (!max_tokens) throw InvalidField("max_tokens", "is missing");
  request.prompt.sampling.max_tokens = *max_tokens;
  fields.LeaveOutOthers();
  return request;
}

Json CountTokens(const Model& model, const Json& body) {
  Fields fields(model.rules, body);
  const MessagesRequest request = ReadRequest(model, &fields);
  fields.LeaveOutOthers();
  const std::vector<int32_t> tokens =
      dsv4::RenderChat(model.engine.tokenizer(), request.prompt.messages, request.prompt.chat);
  return {{"input_tokens", tokens.size()}};
}

}  // namespace server
