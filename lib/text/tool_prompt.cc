// SPDX-License-Identifier: Apache-2.0
#include "lib/text/tool_prompt.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kToolsBeforeSchemas =
    R"(## Tools

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
constexpr absl::string_view kToolsAfterSchemas =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

// The parameters of a call, as an object.
absl::StatusOr<JsonValue> ParametersOf(const std::string& arguments, const std::string& place) {
  absl::StatusOr<JsonValue> parsed = ParsePythonJson(arguments, place);
  if (IsCorrupt(parsed.status())) {
    std::vector<JsonMember> members;
    members.push_back({"arguments", JsonValue::FromString(arguments)});
    return JsonValue::FromObject(std::move(members));
  }
  if (parsed.ok() && !parsed->AsObject()) {
    return InvalidArgument(place, " is JSON of kind ", parsed->KindName(), "; expected an object");
  }
  return parsed;
}

void AppendParameter(const JsonMember& parameter, ChatPrompt* prompt) {
  const std::string* string = parameter.value.AsString();
  prompt->Template("<｜DSML｜parameter name=\"");
  prompt->Text(parameter.key);
  prompt->Template(string ? "\" string=\"true\">" : "\" string=\"false\">");
  if (string) {
    prompt->Text(*string);
  } else {
    prompt->Json(parameter.value);
  }
  prompt->Template("</｜DSML｜parameter>");
}

}  // namespace

void AppendToolsSection(absl::Span<const JsonValue> functions, ChatPrompt* prompt) {
  prompt->Template(kToolsBeforeSchemas);
  for (const JsonValue& function : functions) {
    if (&function != &functions.front()) prompt->Template("\n");
    prompt->Json(function);
  }
  prompt->Template(kToolsAfterSchemas);
}

absl::Status AppendToolCalls(absl::Span<const ToolCall> calls, absl::string_view place,
                             ChatPrompt* prompt) {
  prompt->Template("\n\n<｜DSML｜tool_calls>\n");
  for (size_t i = 0; i < calls.size(); ++i) {
    DSV4_ASSIGN_OR_RETURN(const JsonValue parameters,
                          ParametersOf(calls[i].arguments, absl::StrCat(place, ".tool_calls[", i,
                                                                        "].function.arguments")));
    prompt->Template("<｜DSML｜invoke name=\"");
    prompt->Text(calls[i].name);
    prompt->Template("\">\n");
    const std::vector<JsonMember>& members = *parameters.AsObject();
    for (const JsonMember& member : members) {
      if (&member != &members.front()) prompt->Template("\n");
      AppendParameter(member, prompt);
    }
    prompt->Template("\n</｜DSML｜invoke>\n");
  }
  prompt->Template("</｜DSML｜tool_calls>");
  return absl::OkStatus();
}

void AppendToolResult(absl::string_view content, ChatPrompt* prompt) {
  prompt->Template("<tool_result>");
  prompt->Text(content);
  prompt->Template("</tool_result>");
}

}  // namespace dsv4
