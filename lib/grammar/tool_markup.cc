// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/tool_markup.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
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

// Keywords that are not supported for all parameters of a tool. Others are annotations.
constexpr absl::string_view kRefusedKeywords[] = {"$dynamicRef",
                                                  "$ref",
                                                  "$recursiveRef",
                                                  "allOf",
                                                  "anyOf",
                                                  "const",
                                                  "dependencies",
                                                  "dependentRequired",
                                                  "dependentSchemas",
                                                  "enum",
                                                  "if",
                                                  "maxProperties",
                                                  "minProperties",
                                                  "not",
                                                  "oneOf",
                                                  "patternProperties",
                                                  "propertyNames",
                                                  "unevaluatedProperties"};

// Names stand between quotes, without escapes.
bool CanBeName(absl::string_view name) {
  constexpr absl::string_view kRefused("\"\n\0", 3);
  return !name.empty() && name.find_first_of(kRefused) == absl::string_view::npos &&
         name.find(kDsml) == absl::string_view::npos;
}

class Compiler {
 public:
  Compiler(ExpressionPool* pool, Enforcement* enforcement)
      : pool_(pool),
        enforcement_(enforcement),
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
      strict = *own->AsBool();
    }
    DSV4_ASSIGN_OR_RETURN(const Expr arguments, ArgumentsOf(function, place, strict));
    return pool_->Concat({pool_->Literal(kInvoke), pool_->Literal(*name->AsString()),
                          pool_->Literal("\">\n"), arguments});
  }

 private:
  using Effort = Enforcement::Effort;

  // The arguments, as far as they can be held to the function's schema.
  absl::StatusOr<Expr> ArgumentsOf(const JsonValue& function, const std::string& place,
                                   bool strict) {
    if (!strict && enforcement_->effort() == Effort::kTypes) return AnyArguments();
    const JsonValue* parameters = function.Find("parameters");
    const JsonValue none = JsonValue::FromObject({});
    if (parameters == nullptr || parameters->IsNull()) parameters = &none;
    const std::string schema_place = absl::StrCat(place, "/parameters");
    Enforcement own(strict ? Effort::kStrict : enforcement_->effort());
    absl::StatusOr<Expr> arguments =
        Arguments(*parameters, absl::StrCat("tools#", schema_place), &own);
    enforcement_->AddAll(own);
    if (own.complements()) enforcement_->AddComplement();
    const bool waived = !arguments.ok() && !strict && !pool_->exhausted();
    if (!waived) return arguments;
    enforcement_->Add(absl::StrCat("tools#", schema_place),
                      std::string(arguments.status().message()));
    return AnyArguments();
  }

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

  absl::StatusOr<Expr> Arguments(const JsonValue& given, const std::string& place,
                                 Enforcement* enforcement) {
    SchemaCompiler compiler(pool_, given, place, true, enforcement);
    // Generators may leave nothing at the root but a reference.
    const JsonValue& schema = compiler.Resolved(given);
    if (schema.AsObject() == nullptr) {
      return InvalidArgument(place, ": expected an object with a JSON Schema");
    }
    // What is left out may demand parameters that are not named here.
    bool others = false;
    for (const JsonMember& member : *schema.AsObject()) {
      if (std::find(std::begin(kRefusedKeywords), std::end(kRefusedKeywords), member.key) ==
          std::end(kRefusedKeywords)) {
        continue;
      }
      DSV4_RETURN_IF_ERROR(compiler.Waived(
          "", member.key,
          compiler.Refused("", member.key, "not supported for all parameters of a tool")));
      others = true;
    }
    if (const JsonValue* type = schema.Find("type"); type != nullptr && !MayBeObject(*type)) {
      DSV4_RETURN_IF_ERROR(compiler.Waived("", "type", compiler.Bad("", "type", "\"object\"")));
    }
    StringSet required;
    if (const JsonValue* list = schema.Find("required")) {
      const auto is_text = [](const JsonValue& key) { return key.AsString() != nullptr; };
      if (list->AsArray() == nullptr || !absl::c_all_of(*list->AsArray(), is_text)) {
        DSV4_RETURN_IF_ERROR(
            compiler.Waived("", "required", compiler.Bad("", "required", "an array of strings")));
      } else {
        for (const JsonValue& key : *list->AsArray()) required.insert(*key.AsString());
      }
    }
    ObjectSpec spec = NoParameters();
    std::vector<Expr> names;
    const auto add = [&](const std::string& key, const JsonValue& value,
                         const std::string& pointer) -> absl::Status {
      if (!CanBeName(key)) {
        return compiler.Bad("", "properties", "names without quotes and line breaks");
      }
      names.push_back(pool_->Literal(key));
      DSV4_ASSIGN_OR_RETURN(const Expr parameter,
                            Parameter(names.back(), value, pointer, &compiler));
      spec.named.push_back({parameter, required.erase(key) > 0});
      return absl::OkStatus();
    };
    const JsonValue* properties = schema.Find("properties");
    if (properties != nullptr && properties->AsObject() == nullptr) {
      DSV4_RETURN_IF_ERROR(
          compiler.Waived("", "properties", compiler.Bad("", "properties", "an object")));
      others = true;
    } else if (properties != nullptr) {
      for (const JsonMember& member : *properties->AsObject()) {
        DSV4_RETURN_IF_ERROR(
            add(member.key, member.value,
                absl::StrCat("/properties/", SchemaCompiler::Escaped(member.key))));
      }
    }
    const JsonValue anything = JsonValue::FromBool(true);
    const JsonValue* additional = schema.Find("additionalProperties");
    // Required parameters without a description, in the order of the schema.
    if (const JsonValue* list = required.empty() ? nullptr : schema.Find("required")) {
      for (const JsonValue& key : *list->AsArray()) {
        if (!required.contains(*key.AsString())) continue;
        const JsonValue& value = additional != nullptr ? *additional : anything;
        DSV4_RETURN_IF_ERROR(add(*key.AsString(), value, "/additionalProperties"));
      }
    }
    if (additional != nullptr || others) {
      const Expr other_names =
          pool_->AllOf({name_chars_, pool_->Not(pool_->AnyOf(std::move(names)))});
      DSV4_ASSIGN_OR_RETURN(const Expr other,
                            Parameter(other_names, others ? anything : *additional,
                                      "/additionalProperties", &compiler));
      spec.others.push_back(other);
    }
    return pool_->Object(std::move(spec));
  }

  static bool MayBeObject(const JsonValue& type) {
    const auto is_object = [](const JsonValue& name) {
      return name.AsString() != nullptr && *name.AsString() == "object";
    };
    return is_object(type) ||
           (type.AsArray() != nullptr && absl::c_any_of(*type.AsArray(), is_object));
  }

  ExpressionPool* pool_;
  Enforcement* const enforcement_;
  const Expr raw_;  // text of a parameter that is a string
  const Expr name_chars_;
};

}  // namespace

absl::StatusOr<ToolLanguage> ToolCallLanguage(ExpressionPool* pool, const JsonValue& tools,
                                              const ToolOptions& options,
                                              std::optional<Expr> answer,
                                              Enforcement* enforcement) {
  if (tools.AsArray() == nullptr) return InvalidArgument("tools#: expected an array");
  Compiler compiler(pool, enforcement);
  // The parsers of completions take an invoke without its wrapper for a call, too.
  const Expr text = pool->AllOf({compiler.Without(kCallsMarker), compiler.Without(kInvokeMarker)});
  const Expr reasoning = pool->AllOf({text, compiler.Without(kThinkEnd)});
  if (options.choice == ToolChoice::kNone) return ToolLanguage{answer.value_or(text), reasoning};
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
  if (options.choice == ToolChoice::kRequired) return ToolLanguage{calls, reasoning};
  // Beside an answer of a schema, no text stands before calls: it could not become that answer.
  return ToolLanguage{
      answer ? pool->AnyOf({*answer, calls}) : pool->Concat(text, pool->Optional(calls)),
      reasoning};
}

}  // namespace dsv4::grammar
