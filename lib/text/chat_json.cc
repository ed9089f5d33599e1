// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

absl::Status WrongKind(absl::string_view place, const JsonValue& value, absl::string_view wanted) {
  return InvalidArgument(place, " is of kind ", value.KindName(), "; expected ", wanted);
}

// The value of `key`; null when it is missing, null, false, zero or empty.
const JsonValue* FindTrue(const JsonValue& object, absl::string_view key) {
  const JsonValue* value = object.Find(key);
  return value && PythonTruth(*value) ? value : nullptr;
}

absl::StatusOr<const JsonValue*> Require(const JsonValue& object, absl::string_view key,
                                         absl::string_view place) {
  if (!object.AsObject()) return WrongKind(place, object, "an object");
  const JsonValue* value = object.Find(key);
  if (!value) return InvalidArgument(place, ".", key, " is missing");
  return value;
}

// A text as Python's str.format writes `value`.
absl::StatusOr<std::string> FormattedText(const JsonValue& value, absl::string_view place) {
  std::optional<std::string> text = PythonStr(value);
  if (!text) return WrongKind(place, value, "a string");
  return *std::move(text);
}

// FormattedText of the value of `key`; empty when that is missing, null, false, zero or empty.
absl::StatusOr<std::string> OptionalText(const JsonValue& message, absl::string_view key,
                                         absl::string_view place) {
  const JsonValue* value = FindTrue(message, key);
  if (!value) return std::string();
  return FormattedText(*value, absl::StrCat(place, ".", key));
}

absl::StatusOr<std::string> StringOf(const JsonValue& value, absl::string_view place) {
  if (!value.AsString()) return WrongKind(place, value, "a string");
  return *value.AsString();
}

// Whether a content part of this type is its "text".
bool IsTextType(const JsonValue* type) {
  if (!type || type->IsNull()) return true;
  const std::string* name = type->AsString();
  return name && (*name == "text" || *name == "input_text" || *name == "output_text");
}

// A list of content parts as one text. Parts of other types are named in it where `names_others`.
absl::StatusOr<std::string> JoinedParts(const std::vector<JsonValue>& parts,
                                        absl::string_view place, bool names_others) {
  std::string joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_place = absl::StrCat(place, "[", i, "]");
    if (!parts[i].AsObject()) return WrongKind(part_place, parts[i], "an object");
    if (i > 0) joined += "\n\n";
    const JsonValue* type = parts[i].Find("type");
    const JsonValue* text = parts[i].Find("text");
    if (IsTextType(type)) {
      if (!text && !type) return InvalidArgument(part_place, " has neither a type nor a text");
      if (!text) continue;
      DSV4_ASSIGN_OR_RETURN(const std::string part, StringOf(*text, part_place + ".text"));
      joined += part;
      continue;
    }
    DSV4_ASSIGN_OR_RETURN(const std::string name, FormattedText(*type, part_place + ".type"));
    // A text of its own would be lost.
    if (text || !names_others) {
      return InvalidArgument(part_place, ".type is ", Quoted(name), "; expected ", Quoted("text"));
    }
    absl::StrAppend(&joined, "[Unsupported ", name, "]");
  }
  return joined;
}

absl::StatusOr<std::string> ContentOf(const JsonValue& message, absl::string_view role,
                                      absl::string_view message_place) {
  const JsonValue* content = message.Find("content");
  const std::string place = absl::StrCat(message_place, ".content");
  const bool is_user = role == "user", is_tool = role == "tool";
  if (!content) return std::string();
  if (content->AsArray()) return JoinedParts(*content->AsArray(), place, is_user || is_tool);
  if (is_user) return StringOf(*content, place);
  // These may be any scalar.
  if (is_tool || role == "latest_reminder") {
    return content->IsNull() ? std::string() : FormattedText(*content, place);
  }
  // An empty developer message is refused where it is rendered.
  if (role == "developer" && FindTrue(message, "content")) return StringOf(*content, place);
  return OptionalText(message, "content", message_place);
}

absl::StatusOr<ToolCall> ToolCallFrom(const JsonValue& call, absl::string_view place) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* function, Require(call, "function", place));
  const std::string function_place = absl::StrCat(place, ".function");
  DSV4_ASSIGN_OR_RETURN(const JsonValue* name, Require(*function, "name", function_place));
  DSV4_ASSIGN_OR_RETURN(const JsonValue* arguments,
                        Require(*function, "arguments", function_place));
  ToolCall made;
  const JsonValue* id = FindTrue(call, "id");
  if (!id) id = FindTrue(*function, "id");
  if (id) {
    DSV4_ASSIGN_OR_RETURN(made.id, StringOf(*id, absl::StrCat(place, ".id")));
  }
  DSV4_ASSIGN_OR_RETURN(made.name, StringOf(*name, function_place + ".name"));
  if (arguments->AsString()) {
    made.arguments = *arguments->AsString();
  } else if (arguments->AsObject()) {
    AppendPythonJson(*arguments, &made.arguments);
  } else if (arguments->IsNull()) {
    made.arguments = "{}";
  } else {
    return WrongKind(function_place + ".arguments", *arguments,
                     "an object, or its JSON in a string");
  }
  return made;
}

// What the start of a JSON object may be completed to: first with all of it, then without its last
// member or element. None for another text.
std::vector<std::string> Completions(absl::string_view json) {
  json = absl::StripLeadingAsciiWhitespace(json);
  if (!absl::StartsWith(json, "{")) return {};
  std::string open;           // the brackets that close what is open
  size_t whole = 0;           // the text up to here has whole members and elements
  std::string open_at_whole;  // `open` there
  bool in_string = false;
  size_t escape = absl::string_view::npos;  // where one begins that the text may cut off
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (escape != absl::string_view::npos) {
        const size_t length = json[escape + 1] == 'u' ? 6 : 2;
        if (i + 1 == escape + length) escape = absl::string_view::npos;
      } else if (c == '\\') {
        escape = i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') open.push_back(c == '{' ? '}' : ']');
    if (c == '}' || c == ']') {
      if (open.empty() || open.back() != c) return {};
      open.pop_back();
      if (open.empty()) return {};  // more follows: not cut
    }
    if (c == '{' || c == '[' || c == ',') {
      whole = c == ',' ? i : i + 1;
      open_at_whole = open;
    }
  }
  const auto closed = [](absl::string_view text, std::string brackets) {
    std::reverse(brackets.begin(), brackets.end());
    return absl::StrCat(text, brackets);
  };
  std::string all(in_string ? json.substr(0, escape) : json);
  if (in_string) all.push_back('"');
  return {closed(all, open), closed(json.substr(0, whole), open_at_whole)};
}

// The arguments of a call as clients send them: an empty text for no parameters, and what they have
// of a call that was cut off. The encoder would make both a parameter "arguments", which no tool
// has.
void MendArguments(std::string* arguments) {
  if (absl::StripAsciiWhitespace(*arguments).empty()) *arguments = "{}";
  if (!IsCorrupt(ParsePythonJson(*arguments, "").status())) return;
  for (std::string& completed : Completions(*arguments)) {
    if (!ParsePythonJson(completed, "").ok()) continue;
    *arguments = std::move(completed);
    return;
  }
}

// A key that is set would be lost where it means nothing.
absl::Status CheckKeysOfRole(const JsonValue& object, absl::string_view role,
                             absl::string_view place) {
  const bool assistant = role == "assistant", instructs = role == "system" || role == "developer";
  const bool user_or_tool = role == "user" || role == "tool";
  const struct {
    absl::string_view key;
    bool allowed;
    absl::string_view rule;
  } keys[] = {
      {"reasoning_content", assistant, "only an assistant's message has one"},
      {"tool_calls", assistant, "only an assistant's message has some"},
      {"prefix", assistant, "only an assistant's message may be continued"},
      {"tools", !user_or_tool, "a user's or a tool's message has none"},
      {"response_format", instructs, "only a system's or a developer's message has one"},
      {"function_call", false, "calls are given as tool_calls"},
      {"functions", false, "functions are given as tools"},
      {"refusal", false, "it cannot be written; give it as content"},
  };
  for (const auto& key : keys) {
    if (!key.allowed && FindTrue(object, key.key)) {
      return InvalidArgument(place, ".", key.key, " is set, but ", key.rule);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatMessage> MessageFrom(const JsonValue& object, const std::string& place) {
  if (!object.AsObject()) return WrongKind(place, object, "an object");
  ChatMessage message;
  DSV4_ASSIGN_OR_RETURN(const JsonValue* role, Require(object, "role", place));
  DSV4_ASSIGN_OR_RETURN(message.role, StringOf(*role, place + ".role"));
  DSV4_RETURN_IF_ERROR(CheckKeysOfRole(object, message.role, place));
  DSV4_ASSIGN_OR_RETURN(message.content, ContentOf(object, message.role, place));
  if (const JsonValue* task = object.Find("task"); task && !task->IsNull()) {
    DSV4_ASSIGN_OR_RETURN(message.task, StringOf(*task, place + ".task"));
  }
  if (message.role == "tool") {
    if (const JsonValue* id = FindTrue(object, "tool_call_id")) {
      DSV4_ASSIGN_OR_RETURN(message.tool_call_id, StringOf(*id, place + ".tool_call_id"));
    }
  }
  if (message.role == "user" || message.role == "tool") return message;

  if (const JsonValue* tools = FindTrue(object, "tools")) {
    DSV4_ASSIGN_OR_RETURN(message.tools, ToolsFromJson(*tools, place + ".tools"));
  }
  if (const JsonValue* format = FindTrue(object, "response_format")) {
    message.response_format = *format;
  }
  if (message.role == "assistant") {
    DSV4_ASSIGN_OR_RETURN(message.reasoning_content,
                          OptionalText(object, "reasoning_content", place));
    message.wo_eos = FindTrue(object, "wo_eos") || FindTrue(object, "prefix");
  }
  if (const JsonValue* calls = FindTrue(object, "tool_calls")) {
    const std::string calls_place = place + ".tool_calls";
    if (!calls->AsArray()) return WrongKind(calls_place, *calls, "an array");
    for (const JsonValue& call : *calls->AsArray()) {
      DSV4_ASSIGN_OR_RETURN(
          ToolCall made,
          ToolCallFrom(call, absl::StrCat(calls_place, "[", message.tool_calls.size(), "]")));
      message.tool_calls.push_back(std::move(made));
    }
  }
  return message;
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> ParseMessages(absl::string_view json,
                                                       absl::string_view source) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue array, ParsePythonJson(json, source));
  absl::StatusOr<std::vector<ChatMessage>> messages = MessagesFromJson(array, source);
  if (!messages.ok()) return messages;
  for (ChatMessage& message : *messages) {
    for (ToolCall& call : message.tool_calls) MendArguments(&call.arguments);
  }
  return messages;
}

absl::StatusOr<std::vector<ChatMessage>> MessagesFromJson(const JsonValue& array,
                                                          absl::string_view source) {
  if (!array.AsArray()) return WrongKind(source, array, "an array of messages");
  std::vector<ChatMessage> messages;
  messages.reserve(array.AsArray()->size());
  for (const JsonValue& object : *array.AsArray()) {
    const std::string place = absl::StrCat(source, "[", messages.size(), "]");
    DSV4_ASSIGN_OR_RETURN(ChatMessage message, MessageFrom(object, place));
    if (FindTrue(object, "prefix") && &object != &array.AsArray()->back()) {
      return InvalidArgument(place, ".prefix is set, but only the last message may be continued");
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

JsonValue AssistantToJson(const ChatMessage& message) {
  const auto string = [](const std::string& text) { return JsonValue::FromString(text); };
  std::vector<JsonValue> calls;
  for (const ToolCall& call : message.tool_calls) {
    std::vector<JsonMember> members;
    if (!call.id.empty()) members.push_back({"id", string(call.id)});
    members.push_back({"type", string("function")});
    members.push_back({"function", JsonValue::FromObject({{"name", string(call.name)},
                                                          {"arguments", string(call.arguments)}})});
    calls.push_back(JsonValue::FromObject(std::move(members)));
  }
  return JsonValue::FromObject({{"role", string("assistant")},
                                {"content", string(message.content)},
                                {"reasoning_content", string(message.reasoning_content)},
                                {"tool_calls", JsonValue::FromArray(std::move(calls))}});
}

JsonValue MessageToJson(const ChatMessage& message) {
  const auto string = [](const std::string& text) { return JsonValue::FromString(text); };
  std::vector<JsonMember> members;
  if (message.role == "assistant") {
    members = *AssistantToJson(message).AsObject();
  } else {
    members = {{"role", string(message.role)}, {"content", string(message.content)}};
  }
  if (!message.tool_call_id.empty())
    members.push_back({"tool_call_id", string(message.tool_call_id)});
  if (!message.tools.empty()) {
    std::vector<JsonValue> tools;
    for (const JsonValue& function : message.tools) {
      tools.push_back(
          JsonValue::FromObject({{"type", string("function")}, {"function", function}}));
    }
    members.push_back({"tools", JsonValue::FromArray(std::move(tools))});
  }
  if (message.response_format) members.push_back({"response_format", *message.response_format});
  if (message.task) members.push_back({"task", string(*message.task)});
  if (message.wo_eos) members.push_back({"wo_eos", JsonValue::FromBool(true)});
  return JsonValue::FromObject(std::move(members));
}

absl::StatusOr<std::vector<JsonValue>> ParseTools(absl::string_view json,
                                                  absl::string_view source) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue array, ParsePythonJson(json, source));
  return ToolsFromJson(array, source);
}

absl::StatusOr<std::vector<JsonValue>> ToolsFromJson(const JsonValue& array,
                                                     absl::string_view source) {
  if (!array.AsArray()) return WrongKind(source, array, "an array of tools");
  std::vector<JsonValue> functions;
  for (const JsonValue& tool : *array.AsArray()) {
    const std::string place = absl::StrCat(source, "[", functions.size(), "]");
    if (!tool.Find("function") && tool.Find("name")) {
      return InvalidArgument(place,
                             ".function is missing: the tool has the flat form; expected "
                             "{\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
    DSV4_ASSIGN_OR_RETURN(const JsonValue* function, Require(tool, "function", place));
    if (!function->AsObject()) return WrongKind(place + ".function", *function, "an object");
    functions.push_back(*function);
  }
  return functions;
}

}  // namespace dsv4
