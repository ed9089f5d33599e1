// SPDX-License-Identifier: Apache-2.0
// The list of keywords, and the keywords that combine schemas. json_schema_types.cc has the
// keywords of one type.
#include "lib/grammar/json_schema.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/hex_number.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/json_number.h"

namespace dsv4::grammar {
namespace {

// Schemas within each other that are compiled at once, about 2 KiB of the stack each.
constexpr int kMaxDepth = 16;

constexpr char kNoComplement[] =
    "that something does not match is not enforced: it takes too long to be decided, or something "
    "else in the schema is not enforced";

// Keywords that constrain values and are not supported. All keywords that are not listed here are
// annotations.
constexpr absl::string_view kUnsupported[] = {
    "$dynamicRef", "$recursiveRef", "disallow",         "divisibleBy",
    "extends",     "maxContains",   "unevaluatedItems", "unevaluatedProperties"};
// Keywords that constrain values of one type.
constexpr absl::string_view kTypeKeywords[] = {"additionalProperties",
                                               "contains",
                                               "exclusiveMaximum",
                                               "exclusiveMinimum",
                                               "format",
                                               "items",
                                               "maxItems",
                                               "maxLength",
                                               "maxProperties",
                                               "maximum",
                                               "minItems",
                                               "minLength",
                                               "minProperties",
                                               "minimum",
                                               "multipleOf",
                                               "pattern",
                                               "patternProperties",
                                               "prefixItems",
                                               "properties",
                                               "propertyNames",
                                               "required",
                                               "uniqueItems"};
template <size_t N>
bool Holds(const absl::string_view (&list)[N], absl::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Whether a value has the type that "type" names; integers are numbers, too.
bool HasType(const JsonValue& value, absl::string_view type) {
  if (type == value.KindName()) return true;
  if (type != "integer" || value.AsNumberText() == nullptr) return false;
  const absl::StatusOr<Decimal> number = Decimal::FromJson(*value.AsNumberText());
  return number.ok() && number->fraction.empty();
}

// The value at `pointer`, which is empty or begins with "/".
const JsonValue* At(const JsonValue& root, absl::string_view pointer) {
  const JsonValue* value = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string token =
        absl::StrReplaceAll(pointer.substr(0, end), {{"~1", "/"}, {"~0", "~"}});
    pointer.remove_prefix(end);
    if (const auto* items = value->AsArray()) {
      size_t index = 0;
      if (!absl::c_all_of(token, absl::ascii_isdigit) || !absl::SimpleAtoi(token, &index) ||
          index >= items->size()) {
        return nullptr;
      }
      value = &(*items)[index];
    } else {
      value = value->Find(token);
      if (value == nullptr) return nullptr;
    }
  }
  return value;
}

// Without percent signs.
std::string Decoded(absl::string_view fragment) {
  std::string text;
  for (size_t i = 0; i < fragment.size(); ++i) {
    const bool escaped = fragment[i] == '%' && i + 2 < fragment.size();
    const auto byte = escaped ? HexNumber(fragment.substr(i + 1, 2)) : std::nullopt;
    if (byte) {
      text.push_back(static_cast<char>(*byte));
      i += 2;
    } else {
      text.push_back(fragment[i]);
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<JsonValue> ParseSchema(absl::string_view json, absl::string_view source) {
  absl::StatusOr<JsonValue> schema = ParseJson(json, source, kMaxSchemaBytes, kMaxSchemaDepth);
  if (IsCorrupt(schema.status())) return InvalidArgument(schema.status().message());
  return schema;
}

Expr JsonSpace(ExpressionPool* pool) {
  ByteSet blanks;
  blanks.set(' ').set('\t');
  const Expr line = pool->Concat({pool->Optional(pool->Literal("\r")), pool->Literal("\n"),
                                  pool->Repeat(pool->Bytes(blanks), 0, kMaxIndent)});
  return pool->AnyOf({kEmpty, pool->Literal(" "), line});
}

SchemaCompiler::SchemaCompiler(ExpressionPool* pool, const JsonValue& root, std::string place,
                               bool in_markup, Enforcement* enforcement)
    : pool_(pool),
      root_(root),
      place_(std::move(place)),
      enforcement_(enforcement),
      encoding_(in_markup ? Encoding::kJsonInMarkup : Encoding::kJson),
      space_(JsonSpace(pool)),
      char_(CharOf(pool, CharSet::All(), encoding_)) {
  FindAnchors(root);
  FindNames(root);
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

absl::Status SchemaCompiler::Refused(const std::string& pointer, absl::string_view keyword,
                                     absl::string_view why) const {
  return Unsupported(Place(absl::StrCat(pointer, "/", Escaped(keyword))), ": ", why);
}

absl::Status SchemaCompiler::Bad(const std::string& pointer, absl::string_view keyword,
                                 absl::string_view expected) const {
  return InvalidArgument(Place(absl::StrCat(pointer, "/", Escaped(keyword))), ": expected ",
                         expected);
}

absl::Status SchemaCompiler::Located(const std::string& pointer, absl::string_view keyword,
                                     const absl::Status& status) const {
  return absl::Status(
      status.code(),
      absl::StrCat(Place(absl::StrCat(pointer, "/", Escaped(keyword))), ": ", status.message()));
}

absl::Status SchemaCompiler::Waived(const std::string& pointer, absl::string_view keyword,
                                    const absl::Status& status) const {
  const bool strict =
      enforcement_ == nullptr || enforcement_->effort() == Enforcement::Effort::kStrict;
  if (strict || pool_->exhausted() || IsOutOfHostMemory(status)) return status;
  const std::string place =
      keyword.empty() ? Place(pointer) : Place(absl::StrCat(pointer, "/", Escaped(keyword)));
  absl::string_view reason = status.message();
  if (absl::ConsumePrefix(&reason, place)) absl::ConsumePrefix(&reason, ": ");
  enforcement_->Add(place, std::string(reason));
  return absl::OkStatus();
}

void SchemaCompiler::Note(const std::string& pointer, absl::string_view keyword,
                          std::string reason) const {
  if (enforcement_ == nullptr) return;
  enforcement_->Add(Place(absl::StrCat(pointer, "/", Escaped(keyword))), std::move(reason));
}

std::string SchemaCompiler::Escaped(absl::string_view key) {
  return absl::StrReplaceAll(key, {{"~", "~0"}, {"/", "~1"}});
}

std::string SchemaCompiler::Place(absl::string_view pointer) const {
  constexpr size_t kMaxShown = 400;
  const bool long_one = pointer.size() > kMaxShown;
  if (long_one) pointer.remove_prefix(pointer.size() - kMaxShown);
  return absl::StrCat(place_, long_one ? "..." : "", absl::Utf8SafeCEscape(pointer));
}

absl::StatusOr<Expr> SchemaCompiler::Language(const JsonValue& schema, const std::string& pointer,
                                              Part part, Encoding encoding) {
  DSV4_ASSIGN_OR_RETURN(const Expr e, Value(schema, pointer, {part, encoding}));
  while (!pending_.empty()) {
    const Pending next = std::move(pending_.back());
    pending_.pop_back();
    DSV4_ASSIGN_OR_RETURN(const Expr body, Value(*next.schema, next.pointer, next.view));
    pool_->DefineRule(next.rule, body);
  }
  return e;
}

Expr SchemaCompiler::StringOf(Expr content) {
  const Expr quote = pool_->Literal("\"");
  return pool_->Concat({quote, content, quote});
}

Expr SchemaCompiler::Everything(View view) {
  const auto [entry, added] = everything_.try_emplace(view, kFail);
  if (!added) return entry->second;
  if (view.part == Part::kStrings) {
    const Expr one =
        view.encoding == encoding_ ? char_ : CharOf(pool_, CharSet::All(), view.encoding);
    return entry->second = pool_->Repeat(one, 0, kUnbounded);
  }
  const Expr rule = entry->second = pool_->DeclareRule("a JSON value");
  const Expr value = Everything(Values());
  const Expr string = StringOf(pool_->Repeat(char_, 0, kUnbounded));
  const Expr member = pool_->Concat({string, space_, pool_->Literal(":"), space_, value});
  pool_->DefineRule(rule, AnyValue(view, *NumberLanguage(pool_, {}), value,
                                   pool_->Object(JsonObject({}, {member}))));
  return rule;
}

Expr SchemaCompiler::Plain(View view) {
  if (view.part == Part::kStrings) return Everything(view);
  const auto [entry, added] = plain_.try_emplace(view, kFail);
  if (!added) return entry->second;
  const Expr rule = entry->second = pool_->DeclareRule("a JSON value");
  const Expr value = Plain(Values());
  const Expr colon = pool_->Concat({space_, pool_->Literal(":"), space_});
  std::vector<ObjectSpec::Member> named;
  std::vector<Expr> texts;
  for (const std::string& name : names_) {
    texts.push_back(TextOf(pool_, name, encoding_));
    named.push_back({pool_->Concat({StringOf(texts.back()), colon, value}), false});
  }
  const Expr text = pool_->Repeat(char_, 0, kUnbounded);
  const Expr others =
      texts.empty() ? text : pool_->AllOf({text, pool_->Not(pool_->AnyOf(std::move(texts)))});
  const Expr other = pool_->Concat({StringOf(others), colon, value});
  pool_->DefineRule(rule, AnyValue(view, *NumberLanguage(pool_, {.exponent = false}), value,
                                   pool_->Object(JsonObject(std::move(named), {other}))));
  return rule;
}

ObjectSpec SchemaCompiler::JsonObject(std::vector<ObjectSpec::Member> named,
                                      std::vector<Expr> others) {
  return {.named = std::move(named),
          .others = std::move(others),
          .gap = space_,
          .separator = pool_->Literal(","),
          .close = pool_->Literal("}")};
}

// A value of any type, with `item` in arrays and `members` after the brace of an object.
Expr SchemaCompiler::AnyValue(View view, Expr number, Expr item, Expr members) {
  const Expr comma = pool_->Concat({space_, pool_->Literal(","), space_});
  const Expr items =
      pool_->Concat({item, pool_->Repeat(pool_->Concat(comma, item), 0, kUnbounded), space_});
  return pool_->AnyOf(
      {pool_->Literal("null"), pool_->Literal("true"), pool_->Literal("false"), number,
       pool_->Concat({pool_->Literal("["), space_, pool_->Optional(items), pool_->Literal("]")}),
       pool_->Concat(pool_->Literal("{"), members),
       view.part == Part::kNonStrings ? kFail : StringOf(pool_->Repeat(char_, 0, kUnbounded))});
}

void SchemaCompiler::FindAnchors(const JsonValue& value) {
  if (const auto* items = value.AsArray()) {
    for (const JsonValue& item : *items) FindAnchors(item);
  }
  if (value.AsObject() == nullptr) return;
  for (const JsonMember& member : *value.AsObject()) {
    if (member.key == "enum" || member.key == "const") continue;
    const std::string* name = member.value.AsString();
    if (member.key == "$anchor" && name != nullptr) anchors_.emplace(*name, &value);
    FindAnchors(member.value);
  }
}

void SchemaCompiler::FindNames(const JsonValue& schema) {
  if (const auto* items = schema.AsArray()) {
    for (const JsonValue& item : *items) FindNames(item);
  }
  if (schema.AsObject() == nullptr) return;
  const auto add_keys = [&](const JsonValue& value) {
    if (value.AsObject() == nullptr) return;
    for (const JsonMember& member : *value.AsObject()) names_.push_back(member.key);
  };
  const auto add_texts = [&](const JsonValue& value) {
    if (value.AsArray() == nullptr) return;
    for (const JsonValue& text : *value.AsArray()) {
      if (text.AsString() != nullptr) names_.push_back(*text.AsString());
    }
  };
  for (const JsonMember& member : *schema.AsObject()) {
    const absl::string_view key = member.key;
    if (key == "required") add_texts(member.value);
    if (key == "properties" || key == "dependentRequired" || key == "dependentSchemas" ||
        key == "dependencies") {
      add_keys(member.value);
    }
    const bool demands = key == "dependentRequired" || key == "dependencies";
    if (demands && member.value.AsObject() != nullptr) {
      for (const JsonMember& dependent : *member.value.AsObject()) add_texts(dependent.value);
    }
    if (key == "const" || key == "enum") add_keys(member.value);
    FindNames(member.value);
    if (key != "enum" || member.value.AsArray() == nullptr) continue;
    for (const JsonValue& value : *member.value.AsArray()) add_keys(value);
  }
}

const JsonValue& SchemaCompiler::Resolved(const JsonValue& schema) const {
  const JsonValue* reference = schema.Find("$ref");
  const std::string* text = reference != nullptr ? reference->AsString() : nullptr;
  if (text == nullptr || text->substr(0, 2) != "#/") return schema;
  const JsonValue* target = At(root_, Decoded(absl::string_view(*text).substr(1)));
  return target != nullptr ? *target : schema;
}

bool SchemaCompiler::Apart(const JsonValue& a, const JsonValue& b) const {
  const auto values_of = [](const JsonValue& schema) -> absl::Span<const JsonValue> {
    if (const JsonValue* value = schema.Find("const")) return absl::MakeConstSpan(value, 1);
    const JsonValue* list = schema.Find("enum");
    return list != nullptr && list->AsArray() != nullptr ? absl::MakeConstSpan(*list->AsArray())
                                                         : absl::Span<const JsonValue>();
  };
  const auto some = values_of(a), others = values_of(b);
  if (some.empty() || others.empty()) return false;
  for (const JsonValue& one : some) {
    if (!pool_->Spend(1 + static_cast<int64_t>(others.size()) / 8)) return false;
    for (const JsonValue& other : others) {
      if (!one.AsString() || !other.AsString() || *one.AsString() == *other.AsString()) {
        return false;
      }
    }
  }
  return true;
}

bool SchemaCompiler::Disjoint(const JsonValue& left, const JsonValue& right) const {
  if (Apart(left, right)) return true;
  const auto type_of = [](const JsonValue& schema) {
    const JsonValue* type = schema.Find("type");
    return type != nullptr && type->AsString() != nullptr ? *type->AsString() : std::string();
  };
  const std::string type = type_of(left), other = type_of(right);
  if (type.empty() || other.empty()) return false;
  const auto is_number = [](absl::string_view t) { return t == "integer" || t == "number"; };
  if (type != other) return !(is_number(type) && is_number(other));
  if (type != "object") return false;
  const auto requires_key = [&](const JsonValue& schema, const std::string& key) {
    const JsonValue* list = schema.Find("required");
    if (list == nullptr || list->AsArray() == nullptr) return false;
    if (!pool_->Spend(1 + static_cast<int64_t>(list->AsArray()->size()) / 8)) return false;
    return std::any_of(list->AsArray()->begin(), list->AsArray()->end(), [&](const JsonValue& k) {
      return k.AsString() != nullptr && *k.AsString() == key;
    });
  };
  const JsonValue *some = left.Find("properties"), *others = right.Find("properties");
  if (!some || !others || !some->AsObject() || !others->AsObject()) return false;
  for (const JsonMember& member : *some->AsObject()) {
    if (!pool_->Spend(1 + static_cast<int64_t>(others->AsObject()->size()) / 8)) return false;
    const JsonValue* value = others->Find(member.key);
    if (value == nullptr || !requires_key(left, member.key) || !requires_key(right, member.key)) {
      continue;
    }
    if (Apart(Resolved(member.value), Resolved(*value))) return true;
  }
  return false;
}

Expr SchemaCompiler::Complement(Expr e, View view) {
  const Expr everything = Everything(view);
  const absl::Span<const Expr> parts = pool_->Alternatives(e);
  if (e == everything || std::find(parts.begin(), parts.end(), everything) != parts.end()) {
    return kFail;
  }
  if (e == kFail) return everything;
  if (enforcement_ != nullptr) enforcement_->AddComplement();
  return pool_->AllOf({Plain(view), pool_->Not(e)});
}

absl::StatusOr<Expr> SchemaCompiler::Exactly(const JsonValue& value, View view) {
  if (const std::string* text = value.AsString()) {
    if (view.part == Part::kNonStrings) return kFail;
    const Expr content = TextOf(pool_, *text, view.encoding);
    return view.part == Part::kStrings ? content : StringOf(content);
  }
  if (view.part == Part::kStrings) return kFail;
  if (const std::string* text = value.AsNumberText()) {
    DSV4_ASSIGN_OR_RETURN(const Decimal number, Decimal::FromJson(*text));
    return NumberText(pool_, number);
  }
  if (const auto truth = value.AsBool()) return pool_->Literal(*truth ? "true" : "false");
  if (const auto* items = value.AsArray()) {
    Expr rest = pool_->Literal("]");
    for (size_t i = items->size(); i-- > 0;) {
      DSV4_ASSIGN_OR_RETURN(const Expr item, Exactly((*items)[i], Values()));
      rest = pool_->Concat({i == 0 ? kEmpty : pool_->Literal(","), space_, item, space_, rest});
    }
    if (items->empty()) rest = pool_->Concat(space_, rest);
    return pool_->Concat(pool_->Literal("["), rest);
  }
  if (const auto* members = value.AsObject()) {
    ObjectSpec spec = JsonObject({}, {});
    for (const JsonMember& member : *members) {
      DSV4_ASSIGN_OR_RETURN(const Expr item, Exactly(member.value, Values()));
      spec.named.push_back({pool_->Concat({StringOf(TextOf(pool_, member.key, encoding_)), space_,
                                           pool_->Literal(":"), space_, item}),
                            true});
    }
    return pool_->Concat(pool_->Literal("{"), pool_->Object(std::move(spec)));
  }
  return pool_->Literal("null");
}

absl::Status SchemaCompiler::CheckKeywords(const Members& schema,
                                           const std::string& pointer) const {
  for (const JsonMember& member : schema) {
    absl::Status refused;
    if (member.key == "$id" && !pointer.empty()) {
      refused = Refused(pointer, member.key, "is supported at the root only");
    } else if (Holds(kUnsupported, member.key)) {
      refused = Refused(pointer, member.key, "the keyword is not supported");
    }
    if (!refused.ok()) DSV4_RETURN_IF_ERROR(Waived(pointer, member.key, refused));
  }
  return absl::OkStatus();
}

absl::StatusOr<Expr> SchemaCompiler::Value(const JsonValue& schema, const std::string& pointer,
                                           View view) {
  if (!pool_->Spend(1 + static_cast<int64_t>(pointer.size()) / 64)) {
    return Unsupported("the grammar is too large to be compiled");
  }
  if (const auto truth = schema.AsBool()) return *truth ? Everything(view) : kFail;
  if (schema.AsObject() == nullptr) {
    return InvalidArgument(Place(pointer), ": expected an object or a boolean, not ",
                           schema.KindName());
  }
  if (depth_ == kMaxDepth) return Later(schema, pointer, view);
  ++depth_;
  absl::StatusOr<Expr> value = ValueHere(schema, pointer, view);
  --depth_;
  if (value.ok()) return value;
  DSV4_RETURN_IF_ERROR(Waived(pointer, "", value.status()));
  return Everything(view);
}

absl::StatusOr<Expr> SchemaCompiler::ValueHere(const JsonValue& schema, const std::string& pointer,
                                               View view) {
  const Members* members = schema.AsObject();
  DSV4_RETURN_IF_ERROR(CheckKeywords(*members, pointer));
  std::vector<Expr> all;
  const bool enumerates = schema.Find("enum") != nullptr || schema.Find("const") != nullptr;
  const bool typed = std::any_of(members->begin(), members->end(), [](const JsonMember& member) {
    return Holds(kTypeKeywords, member.key);
  });
  if (enumerates) {
    DSV4_ASSIGN_OR_RETURN(const Expr values, Enumerated(schema, pointer, view));
    all.push_back(values);
  }
  if (typed || (schema.Find("type") != nullptr && !enumerates)) {
    DSV4_ASSIGN_OR_RETURN(const Expr own, Own(schema, pointer, view));
    all.push_back(own);
  }
  DSV4_RETURN_IF_ERROR(AddApplicators(schema, pointer, view, &all));
  return all.empty() ? Everything(view) : pool_->AllOf(std::move(all));
}

// Values of "const" or "enum" that have the type.
absl::StatusOr<Expr> SchemaCompiler::Enumerated(const JsonValue& schema, const std::string& pointer,
                                                View view) {
  const JsonValue* types = schema.Find("type");
  const auto has_type = [&](const JsonValue& value) {
    if (types == nullptr) return true;
    if (const std::string* type = types->AsString()) return HasType(value, *type);
    const auto* list = types->AsArray();
    return list != nullptr && std::any_of(list->begin(), list->end(), [&](const JsonValue& type) {
             return type.AsString() != nullptr && HasType(value, *type.AsString());
           });
  };
  std::vector<Expr> all;
  const auto add = [&](absl::string_view keyword,
                       absl::Span<const JsonValue> values) -> absl::Status {
    std::vector<Expr> parts;
    for (const JsonValue& value : values) {
      if (!has_type(value)) continue;
      const absl::StatusOr<Expr> e = Exactly(value, view);
      if (!e.ok()) return Refused(pointer, keyword, e.status().message());
      parts.push_back(*e);
    }
    all.push_back(pool_->AnyOf(std::move(parts)));
    return absl::OkStatus();
  };
  if (const JsonValue* value = schema.Find("const")) {
    DSV4_RETURN_IF_ERROR(add("const", absl::MakeConstSpan(value, 1)));
  }
  if (const JsonValue* list = schema.Find("enum")) {
    if (list->AsArray() == nullptr) return Bad(pointer, "enum", "an array");
    DSV4_RETURN_IF_ERROR(add("enum", *list->AsArray()));
  }
  return pool_->AllOf(std::move(all));
}

absl::StatusOr<std::vector<Expr>> SchemaCompiler::List(const JsonValue& list,
                                                       const std::string& pointer,
                                                       absl::string_view keyword, View view) {
  const auto* items = list.AsArray();
  if (items == nullptr || items->empty()) return Bad(pointer, keyword, "an array of schemas");
  std::vector<Expr> parts;
  for (size_t i = 0; i < items->size(); ++i) {
    DSV4_ASSIGN_OR_RETURN(const Expr part,
                          Value((*items)[i], absl::StrCat(pointer, "/", keyword, "/", i), view));
    parts.push_back(part);
  }
  return parts;
}

absl::Status SchemaCompiler::AddApplicators(const JsonValue& schema, const std::string& pointer,
                                            View view, std::vector<Expr>* all) {
  const auto add = [&](const char* keyword, auto&& compute) -> absl::Status {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr) return absl::OkStatus();
    const absl::StatusOr<Expr> e = compute(*value);
    if (!e.ok()) return Waived(pointer, keyword, e.status());
    all->push_back(*e);
    return absl::OkStatus();
  };
  const auto add_complement = [&](const char* keyword, auto&& compute) -> absl::Status {
    if (!simple()) return add(keyword, compute);
    if (schema.Find(keyword) != nullptr) Note(pointer, keyword, kNoComplement);
    return absl::OkStatus();
  };
  DSV4_RETURN_IF_ERROR(
      add("$ref", [&](const JsonValue& target) { return Reference(target, pointer, view); }));
  DSV4_RETURN_IF_ERROR(add("allOf", [&](const JsonValue& list) -> absl::StatusOr<Expr> {
    DSV4_ASSIGN_OR_RETURN(std::vector<Expr> parts, List(list, pointer, "allOf", view));
    return pool_->AllOf(std::move(parts));
  }));
  DSV4_RETURN_IF_ERROR(add("anyOf", [&](const JsonValue& list) -> absl::StatusOr<Expr> {
    DSV4_ASSIGN_OR_RETURN(std::vector<Expr> parts, List(list, pointer, "anyOf", view));
    return pool_->AnyOf(std::move(parts));
  }));
  DSV4_RETURN_IF_ERROR(
      add("oneOf", [&](const JsonValue& list) { return OneOf(list, pointer, view); }));
  DSV4_RETURN_IF_ERROR(add_complement("not", [&](const JsonValue& part) -> absl::StatusOr<Expr> {
    DSV4_ASSIGN_OR_RETURN(const Expr e, Value(part, absl::StrCat(pointer, "/not"), view));
    return Complement(e, view);
  }));
  DSV4_RETURN_IF_ERROR(
      add_complement("if", [&](const JsonValue&) { return Conditional(schema, pointer, view); }));
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    DSV4_RETURN_IF_ERROR(add(keyword, [&](const JsonValue& dependents) {
      return Dependents(dependents, pointer, keyword, view);
    }));
  }
  return absl::OkStatus();
}

absl::StatusOr<Expr> SchemaCompiler::OneOf(const JsonValue& list, const std::string& pointer,
                                           View view) {
  DSV4_ASSIGN_OR_RETURN(const std::vector<Expr> parts, List(list, pointer, "oneOf", view));
  std::vector<const JsonValue*> schemas;
  for (const JsonValue& schema : *list.AsArray()) schemas.push_back(&Resolved(schema));
  std::vector<Expr> exactly_one;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<Expr> others;
    for (size_t j = 0; j < parts.size() && pool_->Spend(); ++j) {
      if (j != i && !Disjoint(*schemas[i], *schemas[j])) others.push_back(parts[j]);
    }
    if (simple() && !others.empty()) {
      Note(pointer, "oneOf", kNoComplement);
      others.clear();
    }
    const Expr no_other =
        others.empty() ? kAnything : Complement(pool_->AnyOf(std::move(others)), view);
    exactly_one.push_back(pool_->AllOf({parts[i], no_other}));
  }
  return pool_->AnyOf(std::move(exactly_one));
}

absl::StatusOr<Expr> SchemaCompiler::Conditional(const JsonValue& schema,
                                                 const std::string& pointer, View view) {
  const auto branch = [&](const char* keyword) -> absl::StatusOr<Expr> {
    const JsonValue* part = schema.Find(keyword);
    if (part == nullptr) return Everything(view);
    return Value(*part, absl::StrCat(pointer, "/", keyword), view);
  };
  DSV4_ASSIGN_OR_RETURN(const Expr condition, branch("if"));
  DSV4_ASSIGN_OR_RETURN(const Expr then, branch("then"));
  DSV4_ASSIGN_OR_RETURN(const Expr otherwise, branch("else"));
  return pool_->AnyOf(
      {pool_->AllOf({condition, then}), pool_->AllOf({Complement(condition, view), otherwise})});
}

// Values that are no object with a member of `dependents`, or are as that one demands: a list of
// further members, or a schema.
absl::StatusOr<Expr> SchemaCompiler::Dependents(const JsonValue& dependents,
                                                const std::string& pointer,
                                                absl::string_view keyword, View view) {
  if (dependents.AsObject() == nullptr) return Bad(pointer, keyword, "an object");
  if (view.part == Part::kStrings) return Everything(view);
  std::vector<Expr> all;
  for (const JsonMember& member : *dependents.AsObject()) {
    Expr wanted = kAnything;
    const bool is_list = keyword == "dependentRequired" ||
                         (keyword == "dependencies" && member.value.AsArray() != nullptr);
    if (!is_list) {
      const std::string place = absl::StrCat(pointer, "/", keyword, "/", Escaped(member.key));
      DSV4_ASSIGN_OR_RETURN(wanted, Value(member.value, place, view));
    } else {
      if (member.value.AsArray() == nullptr) return Bad(pointer, keyword, "arrays of strings");
      std::vector<Expr> keys;
      for (const JsonValue& key : *member.value.AsArray()) {
        if (key.AsString() == nullptr) return Bad(pointer, keyword, "arrays of strings");
        keys.push_back(ObjectWith(*key.AsString()));
      }
      wanted = pool_->AllOf(std::move(keys));
    }
    all.push_back(pool_->AnyOf(
        {ValueWithout(member.key, view), pool_->AllOf({ObjectWith(member.key), wanted})}));
  }
  return all.empty() ? Everything(view) : pool_->AllOf(std::move(all));
}

absl::StatusOr<Expr> SchemaCompiler::Reference(const JsonValue& reference,
                                               const std::string& pointer, View view) {
  const std::string* text = reference.AsString();
  if (text == nullptr) return Bad(pointer, "$ref", "a string");
  if (text->empty() || (*text)[0] != '#') {
    return Refused(pointer, "$ref",
                   absl::StrCat(Quoted(*text), " is not within the schema (\"#...\")"));
  }
  std::string target = Decoded(absl::string_view(*text).substr(1));
  const JsonValue* schema = nullptr;
  if (target.empty() || target[0] == '/') {
    schema = At(root_, target);
  } else if (const auto anchor = anchors_.find(target); anchor != anchors_.end()) {
    schema = anchor->second;
  }
  if (schema == nullptr) {
    return Bad(pointer, "$ref",
               absl::StrCat("a pointer to a part of the schema, not ", Quoted(*text)));
  }
  return Later(*schema, std::move(target), view);
}

Expr SchemaCompiler::Later(const JsonValue& schema, std::string pointer, View view) {
  const auto [entry, added] = rules_.try_emplace({&schema, view}, kFail);
  if (added) {
    entry->second = pool_->DeclareRule(Place(pointer));
    pending_.push_back({&schema, std::move(pointer), view, entry->second});
  }
  return entry->second;
}

}  // namespace dsv4::grammar
