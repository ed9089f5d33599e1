// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/responses_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/output_form.h"
#include "examples/dsv4-server/thinking.h"

namespace server {
namespace {

// Reads items of input into messages as the library takes them: reasoning, text and calls of one
// turn are one message there.
class Items {
 public:
  explicit Items(Json* messages) : messages_(messages) {}

  void Add(const Json& item, const std::string& path) {
    Fields fields(item, path);
    const std::string type = fields.String("type").value_or("message");
    fields.Ignore({"id", "status"});
    if (type == "message")
      AddMessage(&fields);
    else if (type == "reasoning")
      AddReasoning(&fields);
    else if (type == "function_call")
      AddCall(&fields);
    else if (type == "function_call_output")
      AddOutput(&fields);
    else
      throw InvalidRequest(path + ".type", path + ".type: \"" + type + "\" is not supported");
    fields.RefuseOthers();
  }

  void End() {
    if (!turn_.is_null()) messages_->push_back(std::exchange(turn_, nullptr));
  }

 private:
  Json& TurnWithout(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (!turn_.is_null() && turn_.contains(key)) End();
    }
    if (turn_.is_null()) turn_ = {{"role", "assistant"}};
    return turn_;
  }

  void AddMessage(Fields* fields) {
    std::string role = fields->RequiredString("role");
    const Json& content = fields->Required("content");
    CheckContent(content, fields->PathOf("content"), {"input_text", "output_text", "text"});
    fields->Ignore({"phase"});
    if (role == "assistant") {
      TurnWithout({"content", "tool_calls"})["content"] = content;
      return;
    }
    if (role == "developer") role = "system";
    if (role != "user" && role != "system")
      throw InvalidField(fields->PathOf("role"), "must be user, assistant, system or developer");
    End();
    messages_->push_back({{"role", role}, {"content", content}});
  }

  void AddReasoning(Fields* fields) {
    std::string text;
    if (const Json* content = fields->Any("content")) {
      CheckContent(*content, fields->PathOf("content"), {"reasoning_text", "text"});
      for (const Json& part : *content) text += part["text"].get<std::string>();
    }
    fields->Ignore({"summary", "encrypted_content"});  // the server writes neither
    if (!text.empty())
      TurnWithout({"reasoning_content", "content", "tool_calls"})["reasoning_content"] = text;
  }

  void AddCall(Fields* fields) {
    Json function = {{"name", fields->RequiredString("name")},
                     {"arguments", fields->RequiredString("arguments")}};
    TurnWithout({})["tool_calls"].push_back({{"id", fields->RequiredString("call_id")},
                                             {"type", "function"},
                                             {"function", std::move(function)}});
  }

  void AddOutput(Fields* fields) {
    End();
    const Json& output = fields->Required("output");
    CheckContent(output, fields->PathOf("output"), {"input_text", "text"});
    messages_->push_back({{"role", "tool"},
                          {"tool_call_id", fields->RequiredString("call_id")},
                          {"content", output}});
  }

  Json* const messages_;
  Json turn_ = nullptr;  // of the assistant, that further items may belong to
};

Json ReadInput(Fields* fields, Json* echoed) {
  Json messages = Json::array();
  if (const auto instructions = fields->String("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
    (*echoed)["instructions"] = *instructions;
  }
  const Json* input = fields->Any("input");
  if (input == nullptr || !(input->is_string() || input->is_array()) || input->empty())
    throw InvalidField("input", "must be a string or a list of items");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    Items items(&messages);
    for (size_t i = 0; i < input->size(); ++i)
      items.Add((*input)[i], "input[" + std::to_string(i) + "]");
    items.End();
  }
  try {
    CheckMessages(messages, "input");
  } catch (const dsv4::Error&) {
    // The error's place counts messages. The request's items are numbered differently.
    ApiError error = CurrentApiError();
    error.param = "input";
    throw error;
  }
  return messages;
}

void ReadTools(Fields* fields, OutputForm* form, Json* echoed) {
  const Json* tools = fields->List("tools");
  (*echoed)["tools"] = tools == nullptr ? Json::array() : *tools;
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], "tools[" + std::to_string(i) + "]");
    if (tool.String("type") != "function")
      throw InvalidField(tool.PathOf("type"), "must be function");
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = tool.Any(name)) function[name] = *value;
    }
    tool.RefuseOthers();
    form->tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
}

void ReadToolChoice(Fields* fields, OutputForm* form, Json* echoed) {
  const Json* choice = fields->Any("tool_choice");
  (*echoed)["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  if (choice == nullptr || ReadToolChoiceWord(*choice, &form->choice)) return;
  Fields given(*choice, "tool_choice");
  if (given.String("type") != "function")
    throw InvalidField("tool_choice.type", "must be function");
  form->choice.name = given.RequiredString("name");
  given.RefuseOthers();
}

void ReadText(Fields* fields, OutputForm* form, Json* echoed) {
  form->schema_field = "text.format";
  (*echoed)["text"] = {{"format", {{"type", "text"}}}};
  const Json* given = fields->Any("text");
  if (given == nullptr) return;
  Fields text(*given, "text");
  if (const Json* format = text.Any("format")) {
    (*echoed)["text"]["format"] = *format;
    Fields members(*format, "text.format");
    ReadSchemaType(&members, form);
  }
  if (text.String("verbosity").value_or("medium") != "medium")
    throw InvalidField("text.verbosity", "other than medium is not supported");
  text.RefuseOthers();
}

dsv4_thinking_mode ReadReasoning(const Model& model, Fields* fields, Json* echoed) {
  Thinking thinking;
  (*echoed)["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  if (const Json* given = fields->Any("reasoning")) {
    Fields reasoning(*given, "reasoning");
    if (const auto effort = reasoning.String("effort")) {
      thinking.Effort("reasoning.effort", *effort);
      (*echoed)["reasoning"]["effort"] = *effort;
    }
    // The reasoning itself is in the answer.
    reasoning.Ignore({"summary", "generate_summary"});
    reasoning.RefuseOthers();
  }
  return thinking.Mode(model.thinking);
}

// What would need answers to be kept, or work that is not done here.
void RefuseUnsupported(Fields* fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt", "max_tool_calls"}) {
    if (fields->Any(name) != nullptr)
      throw InvalidField(name, "is not supported: answers are not kept");
  }
  if (fields->Bool("background").value_or(false))
    throw InvalidField("background", "is not supported");
  if (fields->String("truncation").value_or("disabled") != "disabled")
    throw InvalidField("truncation", "must be disabled");
  if (const Json* given = fields->Any("stream_options")) {
    Fields options(*given, "stream_options");
    options.Ignore({"include_obfuscation"});
    options.RefuseOthers();
  }
  fields->Ignore({"client_metadata"});
}

// The log-probabilities, which have to be asked for by name.
void ReadLogProbs(Fields* fields, ResponsesRequest* request) {
  if (const Json* include = fields->List("include")) {
    for (const Json& what : *include) {
      if (what == "message.output_text.logprobs")
        request->log_probs = true;
      else if (what != "reasoning.encrypted_content")  // there is none: reasoning is plain
        throw InvalidRequest("include",
                             "include: only message.output_text.logprobs and "
                             "reasoning.encrypted_content are accepted");
    }
  }
  const auto top = fields->Integer("top_logprobs", 0, 20);
  if (top.value_or(0) > 0 && !request->log_probs)
    throw InvalidField("top_logprobs", "needs \"include\": [\"message.output_text.logprobs\"]");
  request->top_log_probs = static_cast<size_t>(top.value_or(0));
  if (request->log_probs)
    request->prompt.sampling.log_probs =
        static_cast<int32_t>(std::max<int64_t>(top.value_or(0), 1));
  request->echoed["top_logprobs"] = request->top_log_probs;
}

}  // namespace

ResponsesRequest ReadResponses(const Model& model, const Json& body) {
  Fields fields(body);
  ResponsesRequest request;
  request.common = ReadCommon(model, &fields);
  RefuseUnsupported(&fields);
  Prompt* prompt = &request.prompt;
  prompt->sampling = request.common.sampling;
  prompt->cache_salt = request.common.cache_salt;
  ReadLogProbs(&fields, &request);
  Json* echoed = &request.echoed;
  (*echoed)["instructions"] = nullptr;
  Json messages = ReadInput(&fields, echoed);
  prompt->chat.thinking = ReadReasoning(model, &fields, echoed);
  prompt->chat.encoder = model.encoder;
  request.turn.thinks = prompt->chat.thinking != DSV4_THINKING_OFF;
  const auto limit = fields.Integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max());
  prompt->sampling.max_tokens = limit.value_or(0);
  (*echoed)["max_output_tokens"] = limit ? Json(*limit) : Json();
  OutputForm form;
  ReadTools(&fields, &form, echoed);
  ReadToolChoice(&fields, &form, echoed);
  ReadText(&fields, &form, echoed);
  request.turn.one_call = !fields.Bool("parallel_tool_calls").value_or(true);
  (*echoed)["parallel_tool_calls"] = !request.turn.one_call;
  (*echoed)["temperature"] = prompt->sampling.temperature;
  (*echoed)["top_p"] = prompt->sampling.top_p == 0 ? 1 : prompt->sampling.top_p;
  const Json* metadata = fields.Any("metadata");
  (*echoed)["metadata"] = metadata == nullptr ? Json::object() : *metadata;
  ApplyForm(model, form, prompt, &request.turn, &messages);
  fields.RefuseOthers();
  prompt->messages = TextOf(messages);
  return request;
}

}  // namespace server
