// SPDX-License-Identifier: Apache-2.0
// The keywords of arrays.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/json_number.h"
#include "lib/grammar/json_schema.h"

namespace dsv4::grammar {
namespace {

constexpr uint32_t kMaxContained = 16;

// The values of "enum", "const" or of booleans, if the schema allows no others; otherwise none.
// Other keywords beside them could only take some away, which the caller does not know.
std::vector<JsonValue> ValuesOf(const JsonValue& schema) {
  if (const JsonValue* value = schema.Find("const")) return {*value};
  const JsonValue* list = schema.Find("enum");
  if (list != nullptr && list->AsArray() != nullptr) return *list->AsArray();
  const JsonValue* type = schema.Find("type");
  if (type != nullptr && type->AsString() != nullptr && *type->AsString() == "boolean") {
    return {JsonValue::FromBool(false), JsonValue::FromBool(true)};
  }
  return {};
}

// A key that values have in common exactly if they are equal. nullopt for arrays and objects.
std::optional<std::string> KeyOf(const JsonValue& value) {
  if (value.AsArray() != nullptr || value.AsObject() != nullptr) return std::nullopt;
  if (value.AsString() != nullptr) return absl::StrCat("\"", *value.AsString());
  if (value.AsBool()) return *value.AsBool() ? "true" : "false";
  if (value.AsNumberText() == nullptr) return "null";
  const absl::StatusOr<Decimal> number = Decimal::FromJson(*value.AsNumberText());
  if (!number.ok()) return std::nullopt;
  const bool negative = number->negative && !number->IsZero();
  return absl::StrCat(negative ? "-" : "", number->integer, ".", number->fraction);
}

}  // namespace

// Arrays of distinct values of a finite set are like objects with distinct members.
absl::StatusOr<Expr> SchemaCompiler::UniqueItems(const JsonValue* items, uint32_t min,
                                                 uint32_t max) {
  const std::vector<JsonValue> values =
      items != nullptr ? ValuesOf(Resolved(*items)) : std::vector<JsonValue>();
  const absl::Status unsupported =
      Unsupported("is enforced for items of booleans, and of an enum of strings and numbers");
  if (values.empty()) return unsupported;
  ObjectSpec spec{.gap = space_, .separator = pool_->Literal(","), .close = pool_->Literal("]")};
  spec.min_members = min;
  spec.max_members = max;
  StringSet keys;
  for (const JsonValue& value : values) {
    const std::optional<std::string> key = KeyOf(value);
    if (!key) return unsupported;
    if (!keys.insert(*key).second) continue;
    DSV4_ASSIGN_OR_RETURN(const Expr text, Exactly(value, Values()));
    spec.named.push_back({text, false});
  }
  return pool_->Concat(pool_->Literal("["), pool_->Object(std::move(spec)));
}

// Arrays with as many items of "contains" as "minContains" says.
absl::StatusOr<Expr> SchemaCompiler::Containing(const JsonValue& schema,
                                                const std::string& pointer) {
  DSV4_ASSIGN_OR_RETURN(const uint32_t wanted, Count(schema, pointer, "minContains", 1));
  if (wanted == 0) return kAnything;
  if (wanted > kMaxContained) {
    return Refused(pointer, "minContains",
                   absl::StrCat("more than ", kMaxContained, " is not supported"));
  }
  DSV4_ASSIGN_OR_RETURN(const Expr one, Value(*schema.Find("contains"),
                                              absl::StrCat(pointer, "/contains"), Values()));
  const Expr any = Everything(Values());
  const Expr comma = pool_->Concat({space_, pool_->Literal(","), space_});
  const Expr others = pool_->Repeat(pool_->Concat(any, comma), 0, kUnbounded);
  return pool_->Concat({pool_->Literal("["), space_, others, one,
                        pool_->Repeat(pool_->Concat({comma, others, one}), wanted - 1, wanted - 1),
                        pool_->Repeat(pool_->Concat(comma, any), 0, kUnbounded), space_,
                        pool_->Literal("]")});
}

absl::StatusOr<Expr> SchemaCompiler::Array(const JsonValue& schema, const std::string& pointer) {
  DSV4_ASSIGN_OR_RETURN(const uint32_t min, Count(schema, pointer, "minItems", 0));
  DSV4_ASSIGN_OR_RETURN(const uint32_t max, Count(schema, pointer, "maxItems", kUnbounded));
  // In drafts up to 2019, "items" may be the list, and "additionalItems" is of the other items.
  const JsonValue* items = schema.Find("items");
  const bool old_form = items != nullptr && items->AsArray() != nullptr;
  const JsonValue* list = old_form ? items : schema.Find("prefixItems");
  const char* list_keyword = old_form ? "items" : "prefixItems";
  const char* items_keyword = old_form ? "additionalItems" : "items";
  if (old_form) items = schema.Find("additionalItems");
  std::vector<Expr> prefix;
  if (list != nullptr && !(old_form && list->AsArray()->empty())) {
    absl::StatusOr<std::vector<Expr>> parts = List(*list, pointer, list_keyword, Values());
    if (!parts.ok()) DSV4_RETURN_IF_ERROR(Waived(pointer, list_keyword, parts.status()));
    if (parts.ok()) prefix = *std::move(parts);
  }
  Expr item = Everything(Values());
  if (items != nullptr) {
    DSV4_ASSIGN_OR_RETURN(item, Value(*items, absl::StrCat(pointer, "/", items_keyword), Values()));
  }
  if (min > max) return kFail;
  std::vector<Expr> all = {Items(prefix, item, min, max)};
  if (const JsonValue* unique = schema.Find("uniqueItems")) {
    const bool known = unique->AsBool().has_value();
    absl::StatusOr<Expr> distinct = kAnything;
    if (!known) {
      distinct = Bad(pointer, "uniqueItems", "a boolean");
    } else if (*unique->AsBool() && max > 1) {
      distinct = UniqueItems(list == nullptr ? items : nullptr, min, max);
    }
    if (distinct.ok()) {
      all.push_back(*distinct);
    } else {
      const absl::Status status =
          known ? Located(pointer, "uniqueItems", distinct.status()) : distinct.status();
      DSV4_RETURN_IF_ERROR(Waived(pointer, "uniqueItems", status));
    }
  }
  if (schema.Find("contains") != nullptr) {
    const absl::StatusOr<Expr> containing = Containing(schema, pointer);
    if (containing.ok()) {
      all.push_back(*containing);
    } else {
      DSV4_RETURN_IF_ERROR(Waived(pointer, "contains", containing.status()));
    }
  }
  return pool_->AllOf(std::move(all));
}

// Arrays of `prefix`, then of `item`.
Expr SchemaCompiler::Items(const std::vector<Expr>& prefix, Expr item, uint32_t min, uint32_t max) {
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
  return pool_->Concat(pool_->Literal("["), rest);
}

}  // namespace dsv4::grammar
