// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gate_prompt.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "tools/verify/json_text.h"

namespace dsv4 {
namespace {

constexpr char kBegin[] = "<｜begin▁of▁sentence｜>";
constexpr char kEnd[] = "<｜end▁of▁sentence｜>";
constexpr char kUser[] = "<｜User｜>";
constexpr char kAssistant[] = "<｜Assistant｜>";
constexpr char kThink[] = "<think>";
constexpr char kThinkEnd[] = "</think>";
constexpr int64_t kMaxArgumentsBytes = 1 << 20;

constexpr char kToolsHead[] = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr char kToolsTail[] =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr char kFormatHead[] =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

// The string member `key` of a message; empty when it is absent or null.
absl::string_view TextOf(const JsonValue& message, absl::string_view key) {
  const JsonValue* value = message.Find(key);
  if (value == nullptr || value->AsString() == nullptr) return {};
  return *value->AsString();
}

bool HasItems(const JsonValue& message, absl::string_view key) {
  const JsonValue* value = message.Find(key);
  return value != nullptr && value->AsArray() != nullptr && !value->AsArray()->empty();
}

std::string ToolsSection(const JsonValue& tools) {
  std::string text = absl::StrCat("\n\n", kToolsHead);
  for (const JsonValue& tool : *tools.AsArray()) {
    const JsonValue* function = tool.Find("function");
    if (&tool != tools.AsArray()->data()) text += "\n";
    text += PythonJson(function == nullptr ? JsonValue() : *function);
  }
  return text + kToolsTail;
}

absl::StatusOr<std::string> ToolCalls(const JsonValue& calls) {
  std::string text = "\n\n<｜DSML｜tool_calls>\n";
  for (const JsonValue& call : *calls.AsArray()) {
    const JsonValue* function = call.Find("function");
    const JsonValue* arguments = function == nullptr ? nullptr : function->Find("arguments");
    if (arguments == nullptr || arguments->AsString() == nullptr) {
      return Corrupt("a tool call has no function.arguments");
    }
    DSV4_ASSIGN_OR_RETURN(const JsonValue values,
                          ParseJson(*arguments->AsString(), "arguments", kMaxArgumentsBytes));
    if (values.AsObject() == nullptr) return Corrupt("a tool call's arguments are no object");
    absl::StrAppend(&text, "<｜DSML｜invoke name=\"", TextOf(*function, "name"), "\">\n");
    for (const JsonMember& argument : *values.AsObject()) {
      const std::string* string = argument.value.AsString();
      absl::StrAppend(&text, "<｜DSML｜parameter name=\"", argument.key, "\" string=\"",
                      string != nullptr ? "true" : "false", "\">",
                      string != nullptr ? *string : PythonJson(argument.value),
                      "</｜DSML｜parameter>\n");
    }
    text += "</｜DSML｜invoke>\n";
  }
  return text + "</｜DSML｜tool_calls>";
}

bool IsUserSide(absl::string_view role) { return role == "user" || role == "tool"; }

// Renders one conversation, message by message.
class Renderer {
 public:
  Renderer(const std::vector<JsonValue>& messages, bool thinking)
      : messages_(messages), thinking_(thinking) {
    for (size_t i = 0; i < messages.size(); ++i) {
      has_tools_ = has_tools_ || HasItems(messages[i], "tools");
      if (IsUserSide(TextOf(messages[i], "role"))) last_user_ = i;
    }
  }

  absl::StatusOr<std::string> Render() {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const absl::string_view role = TextOf(messages_[i], "role");
      if (role == "system") {
        System(messages_[i]);
      } else if (IsUserSide(role)) {
        UserSide(i);
      } else if (role == "assistant") {
        DSV4_RETURN_IF_ERROR(Assistant(i));
      } else {
        return Corrupt("message ", i, " has the unknown role '", role, "'");
      }
    }
    return text_;
  }

 private:
  void System(const JsonValue& message) {
    absl::StrAppend(&text_, TextOf(message, "content"));
    if (HasItems(message, "tools")) text_ += ToolsSection(*message.Find("tools"));
    const JsonValue* format = message.Find("response_format");
    if (format != nullptr && !format->IsNull()) {
      absl::StrAppend(&text_, "\n\n", kFormatHead, PythonJson(*format));
    }
  }

  // Neighbouring user and tool messages form one turn.
  void UserSide(size_t i) {
    const bool merged = i > 0 && IsUserSide(TextOf(messages_[i - 1], "role"));
    const bool is_tool = TextOf(messages_[i], "role") == "tool";
    absl::StrAppend(&text_, merged ? "\n\n" : kUser, is_tool ? "<tool_result>" : "",
                    TextOf(messages_[i], "content"), is_tool ? "</tool_result>" : "");
    if (i + 1 == messages_.size() || TextOf(messages_[i + 1], "role") == "assistant") {
      const bool opened = thinking_ && (has_tools_ || i >= last_user_);
      absl::StrAppend(&text_, kAssistant, opened ? kThink : kThinkEnd);
    }
  }

  absl::Status Assistant(size_t i) {
    const JsonValue& message = messages_[i];
    if (thinking_ && (has_tools_ || i > last_user_)) {
      absl::StrAppend(&text_, TextOf(message, "reasoning_content"), kThinkEnd);
    }
    absl::StrAppend(&text_, TextOf(message, "content"));
    if (HasItems(message, "tool_calls")) {
      DSV4_ASSIGN_OR_RETURN(const std::string calls, ToolCalls(*message.Find("tool_calls")));
      text_ += calls;
    }
    text_ += kEnd;
    return absl::OkStatus();
  }

  const std::vector<JsonValue>& messages_;
  const bool thinking_;
  bool has_tools_ = false;
  size_t last_user_ = 0;
  std::string text_ = kBegin;
};

}  // namespace

absl::StatusOr<std::string> GatePrompt(const JsonValue& messages, bool thinking) {
  if (messages.AsArray() == nullptr) return Corrupt("messages is no list");
  return Renderer(*messages.AsArray(), thinking).Render();
}

}  // namespace dsv4
