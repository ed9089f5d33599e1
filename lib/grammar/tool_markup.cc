// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/tool_markup.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/json_schema.h"

namespace dsv4::grammar {
namespace {

#define DSV4_DSML "｜DSML｜"
constexpr absl::string_view kThinkEnd = "</think>";
constexpr absl::string_view kCallsMarker = "<" DSV4_DSML "tool_calls";
constexpr absl::string_view kInvokeMarker = "<" DSV4_DSML "invoke";
constexpr absl::string_view kCallsStart = "\n\n<" DSV4_DSML "tool_calls>\n";
constexpr absl::string_view kCallsEnd = "</" DSV4_DSML "tool_calls>";
constexpr absl::string_view kInvoke = "<" DSV4_DSML "invoke name=\"";
constexpr absl::string_view kInvokeEnd = "\n</" DSV4_DSML "invoke>\n";
constexpr absl::string_view kParameter = "<" DSV4_DSML "parameter name=\"";
constexpr absl::string_view kParameterEnd = "</" DSV4_DSML "parameter>";
constexpr absl::string_view kParameterSlash = "/" DSV4_DSML "parameter";
constexpr absl::string_view kDsml = DSV4_DSML;
#undef DSV4_DSML

// The keywords that the schema of a tool's parameters may have.
constexpr absl::string_view kParameterKeywords[] = {
    "$comment",    "$defs",       "$id",        "$schema",  "additionalProperties",
    "definitions", "description", "properties", "required", "title",
    "type"};

// Names stand between quotes, without escapes.
bool CanBeName(absl::string_view name) {
  constexpr absl::string_view kRefused("\"\n\0", 3);
  return !name.empty() && name.find_first_of(kRefused) == absl::string_view::npos &&
         name.find(kDsml) == absl::string_view::npos;
}

class Compiler {
 public:
  explicit Compiler(ExpressionPool* pool)
      : pool_(pool),
        raw_(Without(kParameterSlash)),
        name_chars_(pool->Repeat(
            CharOf(pool,
                   CharSet{{0, 0x1F}, {'"', '"'}, {'<', '<'}, {'>', '>'}, {0xFF5C, 0xFF5C}}
                       .Complement(),
                   Encoding::kUtf8),
            1, kUnbounded)) {}

  Expr Without(absl::string_view text) {
    return pool_->Not(pool_->Concat({kAnything, pool_->Literal(text), kAnything}));
  }

  absl::StatusOr<Expr> Invoke(const JsonValue& function, const std::string& place, bool strict) {
    const JsonValue* name = function.Find("name");
    if (name == nullptr || name->AsString() == nullptr || !CanBeName(*name->AsString())) {
      return InvalidArgument("tools#", place,
                             "/name: expected a string without quotes and line breaks");
    }
    if (const JsonValue* own = function.Find("strict"); own != nullptr && !own->IsNull()) {
      if (!own->AsBool()) return InvalidArgument("tools#", place, "/strict: expected a boolean");
      strict = strict && *own->AsBool();
    }
    const JsonValue* parameters = function.Find("parameters");
    Expr arguments;
    if (strict) {
      const JsonValue none = JsonValue::FromObject({});
      const bool has_none = parameters == nullptr || parameters->IsNull();
      DSV4_ASSIGN_OR_RETURN(arguments, Arguments(has_none ? none : *parameters,
                                                 absl::StrCat("tools#", place, "/parameters")));
    } else {
      DSV4_ASSIGN_OR_RETURN(arguments, AnyArguments());
    }
    return pool_->Concat({pool_->Literal(kInvoke), pool_->Literal(*name->AsString()),
                          pool_->Literal("\">\n"), arguments});
  }

 private:
  // A parameter whose name is of `name`.
  absl::StatusOr<Expr> Parameter(Expr name, const JsonValue& schema, const std::string& pointer,
                                 SchemaCompiler* compiler) {
    using Part = SchemaCompiler::Part;
    DSV4_ASSIGN_OR_RETURN(const Expr text,
                          compiler->Language(schema, pointer, Part::kStrings, Encoding::kUtf8));
    DSV4_ASSIGN_OR_RETURN(const Expr other, compiler->Language(schema, pointer, Part::kNonStrings,
                                                               Encoding::kJsonInMarkup));
    const Expr value = pool_->AnyOf(
        {pool_->Concat(pool_->Literal("\" string=\"true\">"), pool_->AllOf({text, raw_})),
         pool_->Concat(pool_->Literal("\" string=\"false\">"), other)});
    return pool_->Concat({pool_->Literal(kParameter), name, value, pool_->Literal(kParameterEnd)});
  }

  ObjectSpec NoParameters() {
    return {.separator = pool_->Literal("\n"), .close = pool_->Literal(kInvokeEnd)};
  }

  absl::StatusOr<Expr> AnyArguments() {
    const JsonValue anything = JsonValue::FromBool(true);
    SchemaCompiler compiler(pool_, anything, "tools#", true);
    ObjectSpec spec = NoParameters();
    DSV4_ASSIGN_OR_RETURN(const Expr other, Parameter(name_chars_, anything, "", &compiler));
    spec.others.push_back(other);
    return pool_->Object(std::move(spec));
  }

  absl::StatusOr<Expr> Arguments(const JsonValue& schema, const std::string& place) {
    SchemaCompiler compiler(pool_, schema, place, true);
    if (schema.AsObject() == nullptr) {
      return InvalidArgument(place, ": expected an object with a JSON Schema");
    }
    for (const JsonMember& member : *schema.AsObject()) {
      if (std::find(std::begin(kParameterKeywords), std::end(kParameterKeywords), member.key) ==
          std::end(kParameterKeywords)) {
        return compiler.Refused("", member.key, "not supported for all parameters of a tool");
      }
    }
    const JsonValue* type = schema.Find("type");
    if (type != nullptr && (type->AsString() == nullptr || *type->AsString() != "object")) {
      return compiler.Bad("", "type", "\"object\"");
    }
    StringSet required;
    if (const JsonValue* list = schema.Find("required")) {
      if (list->AsArray() == nullptr) return compiler.Bad("", "required", "an array of strings");
      for (const JsonValue& key : *list->AsArray()) {
        if (key.AsString() == nullptr) return compiler.Bad("", "required", "an array of strings");
        required.insert(*key.AsString());
      }
    }
    ObjectSpec spec = NoParameters();
    std::vector<Expr> names;
    const JsonValue* properties = schema.Find("properties");
    if (properties != nullptr) {
      if (properties->AsObject() == nullptr) return compiler.Bad("", "properties", "an object");
      for (const JsonMember& member : *properties->AsObject()) {
        if (!CanBeName(member.key)) {
          return compiler.Bad("", "properties", "names without quotes and line breaks");
        }
        names.push_back(pool_->Literal(member.key));
        DSV4_ASSIGN_OR_RETURN(
            const Expr parameter,
            Parameter(names.back(), member.value,
                      absl::StrCat("/properties/", SchemaCompiler::Escaped(member.key)),
                      &compiler));
        const bool is_required = required.erase(member.key) > 0;
        spec.named.push_back({parameter, is_required});
      }
    }
    if (!required.empty()) return compiler.Bad("", "required", "names of properties");
    if (const JsonValue* additional = schema.Find("additionalProperties")) {
      const Expr other_names =
          pool_->AllOf({name_chars_, pool_->Not(pool_->AnyOf(std::move(names)))});
      DSV4_ASSIGN_OR_RETURN(const Expr other, Parameter(other_names, *additional,
                                                        "/additionalProperties", &compiler));
      spec.others.push_back(other);
    }
    return pool_->Object(std::move(spec));
  }

  ExpressionPool* pool_;
  const Expr raw_;  // text of a parameter that is a string
  const Expr name_chars_;
};

}  // namespace

absl::StatusOr<ToolLanguage> ToolCallLanguage(ExpressionPool* pool, const JsonValue& tools,
                                              const ToolOptions& options) {
  if (tools.AsArray() == nullptr) return InvalidArgument("tools#: expected an array");
  Compiler compiler(pool);
  // The parsers of completions take an invoke without its wrapper for a call, too.
  const Expr text = pool->AllOf({compiler.Without(kCallsMarker), compiler.Without(kInvokeMarker)});
  const Expr reasoning = pool->AllOf({text, compiler.Without(kThinkEnd)});
  if (options.choice == ToolChoice::kNone) return ToolLanguage{text, reasoning};
  std::vector<Expr> invokes;
  for (size_t i = 0; i < tools.AsArray()->size(); ++i) {
    const JsonValue& tool = (*tools.AsArray())[i];
    const JsonValue* function = tool.Find("function");
    const std::string place = absl::StrCat("/", i, function != nullptr ? "/function" : "");
    if (function == nullptr) function = &tool;
    const JsonValue* name = function->Find("name");
    const bool is_named = options.name.empty() || (name != nullptr && name->AsString() != nullptr &&
                                                   *name->AsString() == options.name);
    DSV4_ASSIGN_OR_RETURN(const Expr invoke, compiler.Invoke(*function, place, options.strict));
    if (is_named) invokes.push_back(invoke);
  }
  if (invokes.empty()) {
    return options.name.empty() ? InvalidArgument("tools#: expected at least one tool")
                                : InvalidArgument("no tool is named ", Quoted(options.name));
  }
  const Expr calls = pool->Concat({pool->Literal(kCallsStart),
                                   pool->Repeat(pool->AnyOf(std::move(invokes)), 1, kUnbounded),
                                   pool->Literal(kCallsEnd)});
  const bool required = options.choice == ToolChoice::kRequired;
  return ToolLanguage{required ? calls : pool->Concat(text, pool->Optional(calls)), reasoning};
}

}  // namespace dsv4::grammar
