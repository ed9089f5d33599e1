// SPDX-License-Identifier: Apache-2.0
// include/dsv4/grammar.h.
#include <dsv4/grammar.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "capi/enum_table.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/grammar.h"
#include "lib/text/python_json.h"

namespace dsv4::capi {
namespace {

using Shared = std::shared_ptr<const grammar::Grammar>;
using Compile = absl::StatusOr<Shared>(absl::string_view source,
                                       std::shared_ptr<const grammar::Vocabulary> tokens);

constexpr EnumValue<Compile*> kKinds[] = {
    {DSV4_GRAMMAR_SCHEMA, &grammar::Grammar::OfSchema},
    {DSV4_GRAMMAR_REGEX, &grammar::Grammar::OfRegex},
    {DSV4_GRAMMAR_EBNF, &grammar::Grammar::OfEbnf},
};

// `name` is the argument's with the source.
dsv4_status Open(const dsv4_engine* engine, const char* source, size_t length,
                 absl::string_view name, absl::FunctionRef<Compile> compile, dsv4_grammar** grammar,
                 dsv4_error** error) {
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(CheckArray(source, length, name));
    DSV4_RETURN_IF_ERROR(NotNull(grammar, "grammar"));
    DSV4_ASSIGN_OR_RETURN(auto tokens, engine->engine->text().grammar_tokens());
    absl::StatusOr<Shared> compiled = compile({source, length}, std::move(tokens));
    if (!compiled.ok()) {
      const bool named = !ArgumentOf(compiled.status()).empty();
      return named ? compiled.status() : WithArgument(compiled.status(), name);
    }
    *grammar = new dsv4_grammar{*std::move(compiled)};
    return absl::OkStatus();
  });
}

constexpr EnumValue<grammar::ToolChoice> kToolChoices[] = {
    {DSV4_TOOL_CHOICE_AUTO, grammar::ToolChoice::kAuto},
    {DSV4_TOOL_CHOICE_NONE, grammar::ToolChoice::kNone},
    {DSV4_TOOL_CHOICE_REQUIRED, grammar::ToolChoice::kRequired},
};

absl::StatusOr<grammar::ToolOptions> ToolOptionsFrom(const dsv4_tool_options* given) {
  grammar::ToolOptions options;
  if (given == nullptr) return options;
  DSV4_ASSIGN_OR_RETURN(const dsv4_tool_options in, CopyIn(given, "options"));
  DSV4_ASSIGN_OR_RETURN(const bool lenient, BoolFrom(in.lenient, "options.lenient"));
  options.strict = !lenient;
  DSV4_ASSIGN_OR_RETURN(options.quick, BoolFrom(in.quick, "options.quick"));
  DSV4_ASSIGN_OR_RETURN(options.choice,
                        EnumFrom(kToolChoices, in.choice, "options.choice", "DSV4_TOOL_CHOICE_"));
  if (in.name != nullptr) options.name = in.name;
  return options;
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_grammar_open(const dsv4_engine* engine, dsv4_grammar_kind kind, const char* source,
                              size_t length, dsv4_grammar** grammar, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  const auto compile = [&](absl::string_view text, auto tokens) -> absl::StatusOr<Shared> {
    DSV4_ASSIGN_OR_RETURN(Compile * of_kind, EnumFrom(kKinds, kind, "kind", "DSV4_GRAMMAR_"));
    return of_kind(text, std::move(tokens));
  };
  return Open(engine, source, length, "source", compile, grammar, error);
}

dsv4_status dsv4_grammar_open_answer(const dsv4_engine* engine, const char* tools,
                                     size_t tools_length, const char* schema, size_t schema_length,
                                     const dsv4_tool_options* options, dsv4_grammar** grammar,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  const bool tools_alone = schema == nullptr && schema_length == 0 && tools != nullptr;
  const auto compile = [&](absl::string_view json, auto tokens) -> absl::StatusOr<Shared> {
    DSV4_ASSIGN_OR_RETURN(const dsv4::grammar::ToolOptions in, ToolOptionsFrom(options));
    if (tools_alone) return dsv4::grammar::Grammar::OfTools(json, in, std::move(tokens));
    if (tools == nullptr) return dsv4::grammar::Grammar::OfAnswer(json, in, std::move(tokens));
    DSV4_RETURN_IF_ERROR(CheckArray(tools, tools_length, "tools"));
    return dsv4::grammar::Grammar::OfToolsOrSchema({tools, tools_length}, json, in,
                                                   std::move(tokens));
  };
  if (tools_alone) return Open(engine, tools, tools_length, "tools", compile, grammar, error);
  return Open(engine, schema, schema_length, "schema", compile, grammar, error);
}

dsv4_status dsv4_grammar_get_unenforced(const dsv4_grammar* grammar, char* json, size_t capacity,
                                        size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(grammar, "grammar"));
    DSV4_RETURN_IF_ERROR(CheckArrayOut(json, capacity, needed, "json"));
    std::string text = "[";
    for (const dsv4::grammar::NotEnforced& one : grammar->grammar->not_enforced()) {
      absl::StrAppend(&text, text.size() > 1 ? "," : "", "{\"place\":\"");
      dsv4::AppendJsonEscaped(one.place, &text);
      text += "\",\"reason\":\"";
      dsv4::AppendJsonEscaped(one.reason, &text);
      text += "\"}";
    }
    text += "]";
    CopyArrayOut(text, json, capacity, needed);
    return absl::OkStatus();
  });
}

void dsv4_grammar_close(dsv4_grammar* grammar) noexcept { delete grammar; }
