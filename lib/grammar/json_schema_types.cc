// SPDX-License-Identifier: Apache-2.0
// The keywords of numbers, strings, arrays and objects.
#include <algorithm>
#include <optional>
#include <utility>

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

}  // namespace

absl::StatusOr<uint32_t> SchemaCompiler::Count(const JsonValue& schema, const std::string& pointer,
                                               absl::string_view keyword,
                                               uint32_t otherwise) const {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr) return otherwise;
  const std::string* text = value->AsNumberText();
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

// Values of the types that the schema names, each with the keywords of its type.
absl::StatusOr<Expr> SchemaCompiler::Own(const JsonValue& schema, const std::string& pointer,
                                         View view) {
  std::vector<absl::string_view> types;
  if (const JsonValue* named = schema.Find("type")) {
    const JsonValue* begin = named;
    size_t count = 1;
    if (const auto* list = named->AsArray()) {
      begin = list->data();
      count = list->size();
    }
    for (const JsonValue& type : absl::MakeConstSpan(begin, count)) {
      const std::string* name = type.AsString();
      const bool known = name != nullptr &&
                         std::find(std::begin(kTypes), std::end(kTypes), *name) != std::end(kTypes);
      if (!known) return Bad(pointer, "type", "the names of JSON types");
      types.push_back(*name);
    }
  } else {
    types = {"null", "boolean", "number", "string", "array", "object"};
  }
  const auto has = [&](absl::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  std::vector<Expr> parts;
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
    if (value->AsNumberText() == nullptr) return Bad(pointer, keyword, "a number");
    absl::StatusOr<Decimal> number = Decimal::FromJson(*value->AsNumberText());
    if (!number.ok()) return Refused(pointer, keyword, number.status().message());
    *out = *std::move(number);
    return absl::OkStatus();
  };
  const auto bound = [&](const char* keyword, bool exclusive,
                         std::optional<NumberSpec::Bound>* out) -> absl::Status {
    std::optional<Decimal> value;
    DSV4_RETURN_IF_ERROR(read(keyword, &value));
    if (value) *out = {*std::move(value), exclusive};
    return absl::OkStatus();
  };
  DSV4_RETURN_IF_ERROR(bound("minimum", false, &spec.minimum));
  DSV4_RETURN_IF_ERROR(bound("exclusiveMinimum", true, &spec.exclusive_minimum));
  DSV4_RETURN_IF_ERROR(bound("maximum", false, &spec.maximum));
  DSV4_RETURN_IF_ERROR(bound("exclusiveMaximum", true, &spec.exclusive_maximum));
  DSV4_RETURN_IF_ERROR(read("multipleOf", &spec.multiple_of));
  if (spec.multiple_of && (spec.multiple_of->negative || spec.multiple_of->IsZero())) {
    return Bad(pointer, "multipleOf", "a number above 0");
  }
  const absl::StatusOr<Expr> language = NumberLanguage(pool_, spec);
  // Only a divisor can be too much.
  if (!language.ok()) return Refused(pointer, "multipleOf", language.status().message());
  return *language;
}

absl::StatusOr<Expr> SchemaCompiler::StringContent(const JsonValue& schema,
                                                   const std::string& pointer, Encoding encoding) {
  std::vector<Expr> all;
  const auto add = [&](const char* keyword, absl::string_view pattern,
                       Anchoring anchoring) -> absl::Status {
    const absl::StatusOr<Expr> language = RegexLanguage(pool_, pattern, encoding, anchoring);
    if (!language.ok()) return Located(pointer, keyword, language.status());
    all.push_back(*language);
    return absl::OkStatus();
  };
  if (const JsonValue* pattern = schema.Find("pattern")) {
    if (pattern->AsString() == nullptr) return Bad(pointer, "pattern", "a string");
    DSV4_RETURN_IF_ERROR(add("pattern", *pattern->AsString(), Anchoring::kSearch));
  }
  if (const JsonValue* format = schema.Find("format")) {
    if (format->AsString() == nullptr) return Bad(pointer, "format", "a string");
    const std::optional<absl::string_view> pattern = PatternOfFormat(*format->AsString());
    if (!pattern) {
      return Refused(pointer, "format",
                     absl::StrCat("not one of the supported formats (", SupportedFormats(), ")"));
    }
    DSV4_RETURN_IF_ERROR(add("format", *pattern, Anchoring::kWhole));
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

absl::StatusOr<Expr> SchemaCompiler::Array(const JsonValue& schema, const std::string& pointer) {
  DSV4_ASSIGN_OR_RETURN(const uint32_t min, Count(schema, pointer, "minItems", 0));
  DSV4_ASSIGN_OR_RETURN(const uint32_t max, Count(schema, pointer, "maxItems", kUnbounded));
  if (const JsonValue* unique = schema.Find("uniqueItems")) {
    if (!unique->AsBool()) return Bad(pointer, "uniqueItems", "a boolean");
    if (*unique->AsBool()) return Refused(pointer, "uniqueItems", "true is not supported");
  }
  std::vector<Expr> prefix;
  if (const JsonValue* list = schema.Find("prefixItems")) {
    DSV4_ASSIGN_OR_RETURN(prefix, List(*list, pointer, "prefixItems", Values()));
  }
  Expr item = Everything(Values());
  if (const JsonValue* items = schema.Find("items")) {
    if (items->AsArray() != nullptr) {
      return Refused(pointer, "items", "an array of schemas is not supported; use prefixItems");
    }
    DSV4_ASSIGN_OR_RETURN(item, Value(*items, absl::StrCat(pointer, "/items"), Values()));
  }
  if (min > max) return kFail;
  const Expr comma = pool_->Concat({space_, pool_->Literal(","), space_});
  const Expr close = pool_->Concat(space_, pool_->Literal("]"));
  // What may follow `count` items, from the last one of the prefix back to none.
  const auto or_end = [&](uint32_t count, Expr more) {
    return pool_->AnyOf({count >= min && count <= max ? close : kFail, more});
  };
  const uint32_t fixed = static_cast<uint32_t>(prefix.size());
  Expr rest = kFail;
  if (fixed <= max) {
    const auto minus_fixed = [&](uint32_t n) { return n > fixed ? n - fixed : 0; };
    const uint32_t fewest = minus_fixed(min);
    const uint32_t most = max == kUnbounded ? kUnbounded : minus_fixed(max);
    if (fixed > 0) {
      rest = pool_->Concat(pool_->Repeat(pool_->Concat(comma, item), fewest, most), close);
    } else if (most == 0) {
      rest = close;
    } else {
      const Expr more = pool_->Repeat(pool_->Concat(comma, item), fewest > 0 ? fewest - 1 : 0,
                                      most == kUnbounded ? kUnbounded : most - 1);
      rest = or_end(0, pool_->Concat({space_, item, more, close}));
    }
  }
  for (uint32_t i = fixed; i-- > 0;) {
    if (i < max) {
      rest = or_end(i, pool_->Concat({i == 0 ? space_ : comma, prefix[i], rest}));
    } else {
      rest = or_end(i, kFail);
    }
  }
  Expr array = pool_->Concat(pool_->Literal("["), rest);
  const JsonValue* contains = schema.Find("contains");
  DSV4_ASSIGN_OR_RETURN(const uint32_t wanted, Count(schema, pointer, "minContains", 1));
  if (contains == nullptr || wanted == 0) return array;
  if (wanted > 1) return Refused(pointer, "minContains", "more than 1 is not supported");
  DSV4_ASSIGN_OR_RETURN(const Expr one,
                        Value(*contains, absl::StrCat(pointer, "/contains"), Values()));
  const Expr any = Everything(Values());
  const Expr with_one = pool_->Concat(
      {pool_->Literal("["), space_, pool_->Repeat(pool_->Concat(any, comma), 0, kUnbounded), one,
       pool_->Repeat(pool_->Concat(comma, any), 0, kUnbounded), close});
  return pool_->AllOf({array, with_one});
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

// What the keywords say about keys and their values.
struct SchemaCompiler::KeyRules {
  struct Pattern {
    Expr keys, value;
    StringSet names;  // of the schema's, those that match
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
  if (patterns->AsObject() == nullptr) return Bad(pointer, "patternProperties", "an object");
  if (patterns->AsObject()->size() > kMaxKeyPatterns) {
    return Refused(pointer, "patternProperties",
                   absl::StrCat("more than ", kMaxKeyPatterns, " patterns are not supported"));
  }
  for (const JsonMember& member : *patterns->AsObject()) {
    const absl::StatusOr<Expr> keys =
        RegexLanguage(pool_, member.key, encoding_, Anchoring::kSearch);
    if (!keys.ok()) return Located(pointer, "patternProperties", keys.status());
    absl::StatusOr<StringSet> matching = Matching(member.key, names);
    if (!matching.ok()) return Located(pointer, "patternProperties", matching.status());
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
    if (list->AsArray() == nullptr) return Bad(pointer, "required", "an array of strings");
    for (const JsonValue& name : *list->AsArray()) {
      if (name.AsString() == nullptr) return Bad(pointer, "required", "an array of strings");
      if (required.insert(*name.AsString()).second) names.push_back(*name.AsString());
    }
  }
  const JsonValue* properties = schema.Find("properties");
  if (properties != nullptr) {
    if (properties->AsObject() == nullptr) return Bad(pointer, "properties", "an object");
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
    return Refused(pointer, "minProperties",
                   "more than 1 is supported only if additionalProperties is false");
  }
  return pool_->Concat(pool_->Literal("{"), pool_->Object(std::move(spec)));
}

}  // namespace dsv4::grammar
