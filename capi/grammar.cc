// SPDX-License-Identifier: Apache-2.0
// include/dsv4/grammar.h.
#include <dsv4/grammar.h>

#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "capi/enum_table.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/grammar.h"

namespace dsv4::capi {
namespace {

using Shared = std::shared_ptr<const grammar::Grammar>;
using Compile = absl::FunctionRef<absl::StatusOr<Shared>(
    absl::string_view source, std::shared_ptr<const grammar::Vocabulary> tokens)>;

// `name` is the argument's with the source.
dsv4_status Open(const dsv4_engine* engine, const char* source, size_t length,
                 absl::string_view name, Compile compile, dsv4_grammar** grammar,
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
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, "options.reserved"));
  DSV4_ASSIGN_OR_RETURN(const bool lenient, BoolFrom(in.lenient, "options.lenient"));
  options.strict = !lenient;
  DSV4_ASSIGN_OR_RETURN(options.choice,
                        EnumFrom(kToolChoices, in.choice, "options.choice", "DSV4_TOOL_CHOICE_"));
  if (in.name != nullptr) options.name = in.name;
  return options;
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_grammar_open_schema(const dsv4_engine* engine, const char* schema, size_t length,
                                     dsv4_grammar** grammar, dsv4_error** error) noexcept {
  return dsv4::capi::Open(engine, schema, length, "schema", dsv4::grammar::Grammar::OfSchema,
                          grammar, error);
}

dsv4_status dsv4_grammar_open_regex(const dsv4_engine* engine, const char* pattern, size_t length,
                                    dsv4_grammar** grammar, dsv4_error** error) noexcept {
  return dsv4::capi::Open(engine, pattern, length, "pattern", dsv4::grammar::Grammar::OfRegex,
                          grammar, error);
}

dsv4_status dsv4_grammar_open_ebnf(const dsv4_engine* engine, const char* rules, size_t length,
                                   dsv4_grammar** grammar, dsv4_error** error) noexcept {
  return dsv4::capi::Open(engine, rules, length, "rules", dsv4::grammar::Grammar::OfEbnf, grammar,
                          error);
}

dsv4_status dsv4_grammar_open_tools(const dsv4_engine* engine, const char* tools, size_t length,
                                    const dsv4_tool_options* options, dsv4_grammar** grammar,
                                    dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  const auto compile = [&](absl::string_view json, auto tokens) -> absl::StatusOr<Shared> {
    DSV4_ASSIGN_OR_RETURN(const dsv4::grammar::ToolOptions in, ToolOptionsFrom(options));
    return dsv4::grammar::Grammar::OfTools(json, in, std::move(tokens));
  };
  return Open(engine, tools, length, "tools", compile, grammar, error);
}

dsv4_status dsv4_grammar_share(const dsv4_grammar* grammar, dsv4_grammar** shared,
                               dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(grammar, "grammar"));
    DSV4_RETURN_IF_ERROR(NotNull(shared, "shared"));
    *shared = new dsv4_grammar{grammar->grammar};
    return absl::OkStatus();
  });
}

void dsv4_grammar_close(dsv4_grammar* grammar) noexcept { delete grammar; }
