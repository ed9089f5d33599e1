// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/responses_request.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/content.h"
#include "examples/dsv4-server/messages_form.h"
#include "examples/dsv4-server/output_form.h"
#include "examples/dsv4-server/response_store.h"
#include "examples/dsv4-server/thinking.h"

namespace server {
namespace {

// Reads items of input into messages as the library takes them: reasoning, text and calls of one
// turn are one message there.
class Items {
 public:
  Items(const FieldRules& rules, Json* messages) : rules_(rules), messages_(messages) {}

  void Add(const Json& item, const std::string& path) {
    Fields fields(rules_, item, path);
    const std::string type = fields.String("type").value_or("message");
    fields.Ignore({"id", "status"});
    if (type == "message") {
      AddMessage(&fields);
    } else if (type == "reasoning") {
      AddReasoning(&fields);
    } else if (type == "function_call") {
      AddCall(&fields, fields.RequiredString("name"), ArgumentsOf(fields.Required("arguments")));
    } else if (type == "function_call_output") {
      AddOutput(&fields);
    } else if (type == "item_reference" || rules_.strict) {
      throw InvalidRequest(path + ".type",
                           path + ".type: \"" + PlainType(type) + "\" is not supported");
    } else if (fields.String("call_id") && type.ends_with("_call")) {
      AddOtherCall(&fields, item, type);
    } else if (fields.String("call_id") && type.ends_with("_call_output")) {
      AddOutput(&fields);
    } else {
      // What servers did: searches, lists of tools, compacted items that only they can read.
      rules_.Say("items of the type " + PlainType(type) + " are left out");
      return;
    }
    fields.LeaveOutOthers();
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
    const Json content =
        ReadContent(rules_, fields->Required("content"), fields->PathOf("content"));
    fields->Ignore({"phase"});
    if (role == "assistant") {
      TurnWithout({"content", "tool_calls"})["content"] = content;
      return;
    }
    if (role == "developer") role = "system";
    if (role != "user" && role != "system")
      throw InvalidRequest(fields->PathOf("role"),
                           fields->PathOf("role") + ": the role \"" + role + "\" is not supported");
    End();
    messages_->push_back({{"role", role}, {"content", content}});
  }

  void AddReasoning(Fields* fields) {
    std::string text;
    if (const Json* content = fields->List("content")) {
      for (size_t i = 0; i < content->size(); ++i)
        text += ReadPart(rules_, (*content)[i],
                         fields->PathOf("content") + "[" + std::to_string(i) + "]");
    }
    fields->Ignore({"summary", "encrypted_content"});  // the server writes neither
    if (!text.empty())
      TurnWithout({"reasoning_content", "content", "tool_calls"})["reasoning_content"] = text;
  }

  void AddCall(Fields* fields, const std::string& name, const Json& arguments) {
    Json function = {{"name", name}, {"arguments", arguments}};
    fields->Ignore({"namespace"});
    TurnWithout({})["tool_calls"].push_back({{"id", fields->RequiredString("call_id")},
                                             {"type", "function"},
                                             {"function", std::move(function)}});
  }

  // A call of a tool that another model was given, such as a custom one: its members are the
  // arguments.
  void AddOtherCall(Fields* fields, const Json& item, const std::string& type) {
    Json arguments = Json::object();
    for (const auto& [name, value] : item.items()) {
      const bool own = name == "type" || name == "id" || name == "call_id" || name == "status" ||
                       name == "name" || value.is_null();
      if (!own) arguments[name] = value;
      if (!own) fields->Any(name.c_str());
    }
    const std::string name = type.substr(0, type.size() - std::string("_call").size());
    AddCall(fields, fields->String("name").value_or(PlainType(name)), TextOf(arguments));
  }

  void AddOutput(Fields* fields) {
    End();
    const Json& output = fields->Required("output");
    messages_->push_back(
        {{"role", "tool"},
         {"tool_call_id", fields->RequiredString("call_id")},
         {"content", output.is_object() ? Json(TextOf(output))
                                        : ReadContent(rules_, output, fields->PathOf("output"))}});
    fields->Ignore({"max_output_length", "name"});
  }

  const FieldRules& rules_;
  Json* const messages_;
  Json turn_ = nullptr;  // of the assistant, that further items may belong to
};

// The response that the request continues; null without one.
std::shared_ptr<const StoredResponse> ReadPrevious(const Model& model, Fields* fields,
                                                   Json* echoed) {
  const auto id = fields->String("previous_response_id");
  (*echoed)["previous_response_id"] = id ? Json(*id) : Json();
  if (!id) return nullptr;
  auto previous = model.responses == nullptr ? nullptr : model.responses->Get(*id);
  if (previous == nullptr)
    throw ApiError{400, "invalid_request_error",
                   "Previous response with id '" + *id + "' not found.", "previous_response_id",
                   "previous_response_not_found"};
  return previous;
}

// Whether the prompt, of `messages`, continues the session of `previous`; and whether its own
// session can be continued: the messages are the request's, in their order, after a system message
// or nothing.
void ReadContinuation(const StoredResponse* previous, const Json& messages,
                      ResponsesRequest* request) {
  const Json& own = request->messages;
  const size_t system = messages.size() - own.size();
  const bool same =
      !request->begun && messages.size() >= own.size() && system <= 1 &&
      (system == 0 || messages[0]["role"] == "system") &&
      std::equal(own.begin(), own.end(), messages.begin() + static_cast<ptrdiff_t>(system));
  if (!same) return;
  request->keeps_session = request->store;
  if (previous != nullptr && previous->kept)
    request->prompt.continues = request->echoed["previous_response_id"];
}

Json ReadInput(Fields* fields, ResponsesRequest* request) {
  const Json* input = fields->Any("input");
  if (input == nullptr || !(input->is_string() || input->is_array()) || input->empty())
    throw InvalidField("input", "must be a string or a list of items");
  if (input->is_string()) {
    request->messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    Items items(fields->rules(), &request->messages);
    for (size_t i = 0; i < input->size(); ++i)
      items.Add((*input)[i], "input[" + std::to_string(i) + "]");
    items.End();
  }
  if (request->store) request->input = *input;
  Json messages = request->messages;
  if (const auto instructions = fields->String("instructions")) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", *instructions}});
    request->echoed["instructions"] = *instructions;
  }
  try {
    request->begun = FinishMessages(&messages, "input");
  } catch (const dsv4::Error&) {
    // The error's place counts messages. The request's items are numbered differently.
    ApiError error = CurrentApiError();
    error.param = "input";
    throw error;
  }
  return messages;
}

// Functions. Tools of other types, which OpenAI's servers run or its models were trained on, are
// left out.
void ReadTools(Fields* fields, OutputForm* form, Json* echoed) {
  const Json* tools = fields->List("tools");
  (*echoed)["tools"] = tools == nullptr ? Json::array() : *tools;
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size(); ++i) {
    Fields tool = fields->Sub((*tools)[i], "tools[" + std::to_string(i) + "]");
    const std::string type = tool.RequiredString("type");
    if (type != "function") {
      LeaveOutTool(tool, type);
      continue;
    }
    AddFunction(&tool, form);
    tool.Ignore({"defer_loading"});
    tool.LeaveOutOthers();
  }
}

void ReadToolChoice(Fields* fields, OutputForm* form, Json* echoed) {
  const Json* choice = fields->Any("tool_choice");
  (*echoed)["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  if (choice == nullptr || ReadToolChoiceWord(*choice, &form->choice)) return;
  Fields given = fields->Sub(*choice, "tool_choice");
  if (given.String("type") != "function")
    throw InvalidField("tool_choice.type", "must be function; others are not supported");
  form->choice.name = given.RequiredString("name");
  given.LeaveOutOthers();
}

void ReadText(Fields* fields, OutputForm* form, Json* echoed) {
  form->schema_field = "text.format";
  (*echoed)["text"] = {{"format", {{"type", "text"}}}};
  const Json* given = fields->Any("text");
  if (given == nullptr) return;
  Fields text = fields->Sub(*given, "text");
  if (const Json* format = text.Any("format")) {
    (*echoed)["text"]["format"] = *format;
    Fields members = text.Sub(*format, "format");
    ReadSchemaType(&members, form);
  }
  text.Ignore({"verbosity"});
  text.LeaveOutOthers();
}

dsv4_thinking_mode ReadReasoning(const Model& model, Fields* fields, Json* echoed) {
  Thinking thinking;
  (*echoed)["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  if (const Json* given = fields->Any("reasoning")) {
    Fields reasoning = fields->Sub(*given, "reasoning");
    if (const auto effort = reasoning.String("effort")) {
      thinking.Effort("reasoning.effort", *effort);
      (*echoed)["reasoning"]["effort"] = *effort;
    }
    // The reasoning itself is in the answer.
    reasoning.Ignore({"summary", "generate_summary"});
    reasoning.LeaveOutOthers();
  }
  return thinking.Mode(model.thinking);
}

// What would change the answer, or ask for another kind of it.
void RefuseUnsupported(Fields* fields) {
  fields->RefuseUnless({{"background"}, {"conversation"}, {"prompt"}});
  const std::string truncation = fields->String("truncation").value_or("disabled");
  if (truncation != "disabled" && truncation != "auto")
    throw InvalidField("truncation", "must be auto or disabled");
  if (const Json* given = fields->Any("stream_options")) {
    Fields options = fields->Sub(*given, "stream_options");
    options.Ignore({"include_obfuscation"});
    options.LeaveOutOthers();
  }
  // Too long input is an error either way; calls of built-in tools are none.
  fields->Ignore({"client_metadata", "context_management", "max_tool_calls"});
}

// The log-probabilities, which have to be asked for by name.
void ReadLogProbs(Fields* fields, ResponsesRequest* request) {
  if (const Json* include = fields->List("include")) {
    for (const Json& what : *include) {
      if (what == "message.output_text.logprobs")
        request->log_probs = true;
      else if (!what.is_string())
        throw InvalidField("include", "must be a list of strings");
      else if (what != "reasoning.encrypted_content")  // there is none: reasoning is plain
        fields->rules().Say("include: " + PlainType(what) + " is left out");
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
  Fields fields(model.rules, body);
  ResponsesRequest request;
  request.common = ReadCommon(model, &fields);
  RefuseUnsupported(&fields);
  Prompt* prompt = &request.prompt;
  prompt->sampling = request.common.sampling;
  prompt->cache_salt = request.common.cache_salt;
  ReadLogProbs(&fields, &request);
  Json* echoed = &request.echoed;
  (*echoed)["instructions"] = nullptr;
  request.store = fields.Bool("store").value_or(true) && model.responses != nullptr;
  (*echoed)["store"] = request.store;
  const auto previous = ReadPrevious(model, &fields, echoed);
  if (previous != nullptr) request.messages = Json::parse(previous->messages);
  Json messages = ReadInput(&fields, &request);
  prompt->chat.thinking = ReadReasoning(model, &fields, echoed);
  prompt->chat.encoder = model.encoder;
  // An answer that was begun has no reasoning.
  request.turn.thinks = !request.begun && prompt->chat.thinking != DSV4_THINKING_OFF;
  const auto limit = fields.Integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max());
  prompt->sampling.max_tokens = limit.value_or(0);
  (*echoed)["max_output_tokens"] = limit ? Json(*limit) : Json();
  OutputForm form;
  ReadTools(&fields, &form, echoed);
  ReadToolChoice(&fields, &form, echoed);
  ReadText(&fields, &form, echoed);
  request.turn.one_call = !fields.Bool("parallel_tool_calls").value_or(true);
  (*echoed)["parallel_tool_calls"] = !request.turn.one_call;
  (*echoed)["temperature"] = std::max(prompt->sampling.temperature, 0.0f);
  (*echoed)["top_p"] = prompt->sampling.top_p == 0 ? 1 : prompt->sampling.top_p;
  const Json* metadata = fields.Any("metadata");
  (*echoed)["metadata"] = metadata == nullptr ? Json::object() : *metadata;
  ApplyForm(model, form, prompt, &request.turn, &messages);
  fields.LeaveOutOthers();
  ReadContinuation(previous.get(), messages, &request);
  prompt->messages = TextOf(messages);
  return request;
}

}  // namespace server
