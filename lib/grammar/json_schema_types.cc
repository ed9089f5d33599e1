// SPDX-License-Identifier: Apache-2.0
// The keywords of numbers, strings, arrays and objects.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/json_number.h"
#include "lib/grammar/json_schema.h"
#include "lib/grammar/regex.h"
#include "lib/grammar/string_format.h"

namespace dsv4::grammar {
namespace {

constexpr uint32_t kMaxCount = 1 << 20;
// Patterns of keys are told apart in all combinations.
constexpr size_t kMaxKeyPatterns = 6;
constexpr absl::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};

std::string NotAFormat() {
  return absl::StrCat("an annotation: not one of the enforced formats (", SupportedFormats(), ")");
}

}  // namespace

absl::StatusOr<uint32_t> SchemaCompiler::Count(const JsonValue& schema, const std::string& pointer,
                                               absl::string_view keyword,
                                               uint32_t otherwise) const {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr) return otherwise;
  const absl::StatusOr<uint32_t> count = CountOf(*value, pointer, keyword);
  if (count.ok()) return count;
  DSV4_RETURN_IF_ERROR(Waived(pointer, keyword, count.status()));
  return otherwise;
}

absl::StatusOr<uint32_t> SchemaCompiler::CountOf(const JsonValue& value, const std::string& pointer,
                                                 absl::string_view keyword) const {
  const std::string* text = value.AsNumberText();
  if (text == nullptr) return Bad(pointer, keyword, "an integer of 0 or more");
  const absl::StatusOr<Decimal> number = Decimal::FromJson(*text);
  if (number.ok() && (number->negative || !number->fraction.empty())) {
    return Bad(pointer, keyword, "an integer of 0 or more");
  }
  if (!number.ok() || number->integer.size() > 7) {
    return Refused(pointer, keyword, absl::StrCat("more than ", kMaxCount, " is not supported"));
  }
  uint32_t count = 0;
  for (const char digit : number->integer) count = count * 10 + static_cast<uint32_t>(digit - '0');
  if (count > kMaxCount)
    return Refused(pointer, keyword, absl::StrCat("more than ", kMaxCount, " is not supported"));
  return count;
}

absl::StatusOr<std::vector<absl::string_view>> SchemaCompiler::Types(
    const JsonValue& schema, const std::string& pointer) const {
  const std::vector<absl::string_view> all = {"null",   "boolean", "number",
                                              "string", "array",   "object"};
  const JsonValue* named = schema.Find("type");
  if (named == nullptr) return all;
  std::vector<absl::string_view> types;
  const auto* list = named->AsArray();
  for (const JsonValue& type :
       list != nullptr ? absl::MakeConstSpan(*list) : absl::MakeConstSpan(named, 1)) {
    const std::string* name = type.AsString();
    const bool known = name != nullptr &&
                       std::find(std::begin(kTypes), std::end(kTypes), *name) != std::end(kTypes);
    if (!known) {
      DSV4_RETURN_IF_ERROR(
          Waived(pointer, "type", Bad(pointer, "type", "the names of JSON types")));
      return all;
    }
    types.push_back(*name);
  }
  return types;
}

// Values of the types that the schema names, each with the keywords of its type.
absl::StatusOr<Expr> SchemaCompiler::Own(const JsonValue& schema, const std::string& pointer,
                                         View view) {
  DSV4_ASSIGN_OR_RETURN(const std::vector<absl::string_view> types, Types(schema, pointer));
  const auto has = [&](absl::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  std::vector<Expr> parts;
  const JsonValue* format = schema.Find("format");
  if (format != nullptr && format->AsString() != nullptr && !has("string") &&
      !PatternOfFormat(*format->AsString()) && !RangeOfFormat(*format->AsString())) {
    Note(pointer, "format", NotAFormat());
  }
  if (has("string") && view.part != Part::kNonStrings) {
    const Encoding encoding = view.part == Part::kStrings ? view.encoding : encoding_;
    DSV4_ASSIGN_OR_RETURN(const Expr content, StringContent(schema, pointer, encoding));
    parts.push_back(view.part == Part::kStrings ? content : StringOf(content));
  }
  if (view.part == Part::kStrings) return pool_->AnyOf(std::move(parts));
  if (has("null")) parts.push_back(pool_->Literal("null"));
  if (has("boolean")) {
    parts.push_back(pool_->Literal("true"));
    parts.push_back(pool_->Literal("false"));
  }
  if (has("number") || has("integer")) {
    DSV4_ASSIGN_OR_RETURN(const Expr number, Number(schema, pointer, !has("number")));
    parts.push_back(number);
  }
  if (has("array")) {
    DSV4_ASSIGN_OR_RETURN(const Expr array, Array(schema, pointer));
    parts.push_back(array);
  }
  if (has("object")) {
    DSV4_ASSIGN_OR_RETURN(const Expr object, Object(schema, pointer));
    parts.push_back(object);
  }
  return pool_->AnyOf(std::move(parts));
}

absl::StatusOr<Expr> SchemaCompiler::Number(const JsonValue& schema, const std::string& pointer,
                                            bool integer) {
  NumberSpec spec{.integer = integer};
  const auto read = [&](const char* keyword, std::optional<Decimal>* out) -> absl::Status {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr) return absl::OkStatus();
    if (value->AsNumberText() == nullptr)
      return Waived(pointer, keyword, Bad(pointer, keyword, "a number"));
    absl::StatusOr<Decimal> number = Decimal::FromJson(*value->AsNumberText());
    if (!number.ok())
      return Waived(pointer, keyword, Refused(pointer, keyword, number.status().message()));
    *out = *std::move(number);
    return absl::OkStatus();
  };
  using Bound = std::optional<NumberSpec::Bound>;
  // In drafts up to 4 an exclusive bound is a boolean beside the bound.
  const auto bounds = [&](const char* keyword, Bound* out, const char* exclusive_keyword,
                          Bound* exclusive_out) -> absl::Status {
    std::optional<Decimal> value, exclusive;
    DSV4_RETURN_IF_ERROR(read(keyword, &value));
    const JsonValue* flag = schema.Find(exclusive_keyword);
    if (flag != nullptr && flag->AsBool()) {
      if (value) *out = {*std::move(value), *flag->AsBool()};
      return absl::OkStatus();
    }
    DSV4_RETURN_IF_ERROR(read(exclusive_keyword, &exclusive));
    if (value) *out = {*std::move(value), false};
    if (exclusive) *exclusive_out = {*std::move(exclusive), true};
    return absl::OkStatus();
  };
  DSV4_RETURN_IF_ERROR(
      bounds("minimum", &spec.minimum, "exclusiveMinimum", &spec.exclusive_minimum));
  DSV4_RETURN_IF_ERROR(
      bounds("maximum", &spec.maximum, "exclusiveMaximum", &spec.exclusive_maximum));
  DSV4_RETURN_IF_ERROR(read("multipleOf", &spec.multiple_of));
  if (spec.multiple_of && (spec.multiple_of->negative || spec.multiple_of->IsZero())) {
    DSV4_RETURN_IF_ERROR(
        Waived(pointer, "multipleOf", Bad(pointer, "multipleOf", "a number above 0")));
    spec.multiple_of.reset();
  }
  absl::StatusOr<Expr> language = NumberLanguage(pool_, spec);
  if (!language.ok()) {
    // Only a divisor can be too much.
    DSV4_RETURN_IF_ERROR(
        Waived(pointer, "multipleOf", Refused(pointer, "multipleOf", language.status().message())));
    spec.multiple_of.reset();
    language = NumberLanguage(pool_, spec);
  }
  const JsonValue* format = schema.Find("format");
  const std::optional<FormatRange> range = format != nullptr && format->AsString() != nullptr
                                               ? RangeOfFormat(*format->AsString())
                                               : std::nullopt;
  if (!range) return language;
  NumberSpec of_format{.integer = true};
  of_format.minimum = {*Decimal::FromJson(range->low), false};
  of_format.maximum = {*Decimal::FromJson(range->high), false};
  DSV4_ASSIGN_OR_RETURN(const Expr within, NumberLanguage(pool_, of_format));
  return pool_->AllOf({*language, within});
}

absl::StatusOr<Expr> SchemaCompiler::StringContent(const JsonValue& schema,
                                                   const std::string& pointer, Encoding encoding) {
  std::vector<Expr> all;
  const auto add = [&](const char* keyword, absl::string_view pattern,
                       Anchoring anchoring) -> absl::Status {
    const absl::StatusOr<Expr> language = RegexLanguage(pool_, pattern, encoding, anchoring);
    if (!language.ok())
      return Waived(pointer, keyword, Located(pointer, keyword, language.status()));
    all.push_back(*language);
    return absl::OkStatus();
  };
  const auto text_of = [&](const char* keyword, const std::string** text) -> absl::Status {
    const JsonValue* value = schema.Find(keyword);
    *text = value != nullptr ? value->AsString() : nullptr;
    if (value == nullptr || *text != nullptr) return absl::OkStatus();
    return Waived(pointer, keyword, Bad(pointer, keyword, "a string"));
  };
  const std::string *pattern = nullptr, *format = nullptr;
  DSV4_RETURN_IF_ERROR(text_of("pattern", &pattern));
  DSV4_RETURN_IF_ERROR(text_of("format", &format));
  if (pattern != nullptr) DSV4_RETURN_IF_ERROR(add("pattern", *pattern, Anchoring::kSearch));
  if (format != nullptr) {
    // An unknown format is an annotation, says the draft.
    if (const auto known = PatternOfFormat(*format)) {
      DSV4_RETURN_IF_ERROR(add("format", *known, Anchoring::kWhole));
    } else {
      Note(pointer, "format", NotAFormat());
    }
  }
  DSV4_ASSIGN_OR_RETURN(const uint32_t min, Count(schema, pointer, "minLength", 0));
  DSV4_ASSIGN_OR_RETURN(const uint32_t max, Count(schema, pointer, "maxLength", kUnbounded));
  if (min > max) return kFail;
  if (min > 0 || max != kUnbounded || all.empty()) {
    const Expr one = encoding == encoding_ ? char_ : CharOf(pool_, CharSet::All(), encoding);
    all.push_back(pool_->Repeat(one, min, max));
  }
  return pool_->AllOf(std::move(all));
}

// Objects that have the member.
Expr SchemaCompiler::ObjectWith(const std::string& key) {
  ObjectSpec spec = JsonObject({}, {});
  const Expr colon = pool_->Concat({space_, pool_->Literal(":"), space_});
  const Expr any = Everything(Values());
  const Expr text = TextOf(pool_, key, encoding_);
  spec.named.push_back({pool_->Concat({StringOf(text), colon, any}), true});
  const Expr other = pool_->AllOf({pool_->Repeat(char_, 0, kUnbounded), pool_->Not(text)});
  spec.others.push_back(pool_->Concat({StringOf(other), colon, any}));
  return pool_->Concat(pool_->Literal("{"), pool_->Object(std::move(spec)));
}

// Values other than objects that have the member: their complement, without one.
Expr SchemaCompiler::ValueWithout(const std::string& key, View view) {
  const Expr colon = pool_->Concat({space_, pool_->Literal(":"), space_});
  const Expr any = Everything(Values());
  const Expr names = pool_->AllOf(
      {pool_->Repeat(char_, 0, kUnbounded), pool_->Not(TextOf(pool_, key, encoding_))});
  const Expr member = pool_->Concat({StringOf(names), colon, any});
  return AnyValue(view, *NumberLanguage(pool_, {}), any, pool_->Object(JsonObject({}, {member})));
}

// The rules of the keywords about keys and their values.
struct SchemaCompiler::KeyRules {
  struct Pattern {
    Expr keys, value;
    StringSet names;  // the names in the schema that match
  };
  std::vector<Pattern> patterns{};
  Expr additional = kFail;  // kFail: no others
  Expr names = kAnything;   // that keys must have

  // The value of the key `name`, besides what "properties" says.
  std::vector<Expr> ValuesOf(const std::string& name) const {
    std::vector<Expr> values;
    for (const Pattern& pattern : patterns) {
      if (pattern.names.contains(name)) values.push_back(pattern.value);
    }
    return values;
  }
};

// The texts that have a match of `pattern` anywhere.
absl::StatusOr<StringSet> SchemaCompiler::Matching(absl::string_view pattern,
                                                   const std::vector<std::string>& texts) {
  ExpressionPool pool;
  pool.AllowWork(pool_->work_left());
  DSV4_ASSIGN_OR_RETURN(const Expr language,
                        RegexLanguage(&pool, pattern, Encoding::kUtf8, Anchoring::kSearch));
  StringSet matching;
  const absl::Status status = pool.Compile(language);
  for (size_t i = 0; status.ok() && i < texts.size(); ++i) {
    Expr state = language;
    for (const char byte : texts[i]) state = pool.Next(state, static_cast<uint8_t>(byte));
    if (pool.Accepts(state)) matching.insert(texts[i]);
  }
  pool_->Spend(pool_->work_left() - pool.work_left());
  if (pool.exhausted())
    return Unsupported("matching the pattern and the property names takes too long");
  return matching;  // none, if nothing matches the pattern at all
}

absl::StatusOr<SchemaCompiler::KeyRules> SchemaCompiler::ReadKeyRules(
    const JsonValue& schema, const std::string& pointer, const std::vector<std::string>& names) {
  KeyRules rules{.additional = Everything(Values())};
  if (const JsonValue* additional = schema.Find("additionalProperties")) {
    DSV4_ASSIGN_OR_RETURN(
        rules.additional,
        Value(*additional, absl::StrCat(pointer, "/additionalProperties"), Values()));
  }
  if (const JsonValue* names = schema.Find("propertyNames")) {
    DSV4_ASSIGN_OR_RETURN(rules.names, Value(*names, absl::StrCat(pointer, "/propertyNames"),
                                             {Part::kStrings, encoding_}));
  }
  const JsonValue* patterns = schema.Find("patternProperties");
  if (patterns == nullptr) return rules;
  absl::Status refused;
  if (patterns->AsObject() == nullptr) {
    refused = Bad(pointer, "patternProperties", "an object");
  } else if (patterns->AsObject()->size() > kMaxKeyPatterns) {
    refused = Refused(pointer, "patternProperties",
                      absl::StrCat("more than ", kMaxKeyPatterns, " patterns are not supported"));
  }
  // Without its patterns, an object may have other members of any kind.
  const auto waive = [&](const absl::Status& status) -> absl::Status {
    DSV4_RETURN_IF_ERROR(Waived(pointer, "patternProperties", status));
    rules.patterns.clear();
    rules.additional = Everything(Values());
    return absl::OkStatus();
  };
  if (!refused.ok()) {
    DSV4_RETURN_IF_ERROR(waive(refused));
    return rules;
  }
  for (const JsonMember& member : *patterns->AsObject()) {
    const absl::StatusOr<Expr> keys =
        RegexLanguage(pool_, member.key, encoding_, Anchoring::kSearch);
    absl::StatusOr<StringSet> matching = StringSet();
    if (keys.ok()) matching = Matching(member.key, names);
    if (!keys.ok() || !matching.ok()) {
      DSV4_RETURN_IF_ERROR(waive(
          Located(pointer, "patternProperties", keys.ok() ? matching.status() : keys.status())));
      return rules;
    }
    DSV4_ASSIGN_OR_RETURN(
        const Expr value,
        Value(member.value, absl::StrCat(pointer, "/patternProperties/", Escaped(member.key)),
              Values()));
    rules.patterns.push_back({*keys, value, *std::move(matching)});
  }
  return rules;
}

absl::StatusOr<Expr> SchemaCompiler::Object(const JsonValue& schema, const std::string& pointer) {
  ObjectSpec spec = JsonObject({}, {});
  DSV4_ASSIGN_OR_RETURN(spec.min_members, Count(schema, pointer, "minProperties", 0));
  DSV4_ASSIGN_OR_RETURN(spec.max_members, Count(schema, pointer, "maxProperties", kUnbounded));
  std::vector<std::string> names;
  StringSet required;
  if (const JsonValue* list = schema.Find("required")) {
    const auto is_text = [](const JsonValue& name) { return name.AsString() != nullptr; };
    if (list->AsArray() == nullptr || !absl::c_all_of(*list->AsArray(), is_text)) {
      DSV4_RETURN_IF_ERROR(
          Waived(pointer, "required", Bad(pointer, "required", "an array of strings")));
    } else {
      for (const JsonValue& name : *list->AsArray()) {
        if (required.insert(*name.AsString()).second) names.push_back(*name.AsString());
      }
    }
  }
  const JsonValue* properties = schema.Find("properties");
  if (properties != nullptr && properties->AsObject() == nullptr) {
    DSV4_RETURN_IF_ERROR(Waived(pointer, "properties", Bad(pointer, "properties", "an object")));
    properties = nullptr;
  }
  if (properties != nullptr) {
    for (const JsonMember& member : *properties->AsObject()) {
      if (!required.contains(member.key)) names.push_back(member.key);
    }
  }
  DSV4_ASSIGN_OR_RETURN(const KeyRules rules, ReadKeyRules(schema, pointer, names));
  const Expr colon = pool_->Concat({space_, pool_->Literal(":"), space_});
  std::vector<Expr> named;
  const auto add_named = [&](const std::string& name, Expr value) {
    const Expr text = TextOf(pool_, name, encoding_);
    named.push_back(text);
    spec.named.push_back(
        {pool_->Concat({StringOf(pool_->AllOf({text, rules.names})), colon, value}),
         required.contains(name)});
  };
  StringSet described;
  if (properties != nullptr) {
    for (const JsonMember& member : *properties->AsObject()) {
      DSV4_ASSIGN_OR_RETURN(
          const Expr value,
          Value(member.value, absl::StrCat(pointer, "/properties/", Escaped(member.key)),
                Values()));
      std::vector<Expr> values = rules.ValuesOf(member.key);
      values.push_back(value);
      add_named(member.key, pool_->AllOf(std::move(values)));
      described.insert(member.key);
    }
  }
  for (const std::string& name : names) {
    if (described.contains(name)) continue;  // the others are required alone
    std::vector<Expr> values = rules.ValuesOf(name);
    if (values.empty()) values.push_back(rules.additional);
    add_named(name, pool_->AllOf(std::move(values)));
  }

  // Other keys, by the patterns that they match.
  const Expr other_names = pool_->AllOf({pool_->Repeat(char_, 0, kUnbounded), rules.names,
                                         pool_->Not(pool_->AnyOf(std::move(named)))});
  for (size_t matched = 0; matched < size_t{1} << rules.patterns.size(); ++matched) {
    std::vector<Expr> keys = {other_names}, values;
    for (size_t i = 0; i < rules.patterns.size(); ++i) {
      const bool matches = (matched >> i & 1) != 0;
      keys.push_back(matches ? rules.patterns[i].keys : pool_->Not(rules.patterns[i].keys));
      if (matches) values.push_back(rules.patterns[i].value);
    }
    if (values.empty()) values.push_back(rules.additional);
    const Expr value = pool_->AllOf(std::move(values));
    if (value == kFail) continue;
    spec.others.push_back(pool_->Concat({StringOf(pool_->AllOf(std::move(keys))), colon, value}));
  }
  // Keys of others may repeat, and then the object has fewer members than were counted.
  if (spec.min_members > 1 && !spec.others.empty()) {
    DSV4_RETURN_IF_ERROR(
        Waived(pointer, "minProperties",
               Refused(pointer, "minProperties",
                       "more than 1 is supported only if additionalProperties is false")));
    spec.min_members = 1;
  }
  return pool_->Concat(pool_->Literal("{"), pool_->Object(std::move(spec)));
}

}  // namespace dsv4::grammar
