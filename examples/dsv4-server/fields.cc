// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

[[noreturn]] void Refuse(const std::string& path, const std::string& expected) {
  throw InvalidField(path, "must be " + expected);
}

// Whether `value` is a whole number from `low` to `high`.
bool IsBetween(const Json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return false;
  const int64_t number = value.get<int64_t>();
  return number >= low && number <= high;
}

}  // namespace

Fields::Fields(const FieldRules& rules, const Json& object, std::string path)
    : rules_(rules), object_(object), path_(std::move(path)) {
  if (!object_.is_object()) Refuse(path_, "an object");
}

std::string Fields::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const Json* Fields::Any(const char* name) {
  known_.insert(name);
  const auto member = object_.find(name);
  return member == object_.end() || member->is_null() ? nullptr : &*member;
}

std::optional<bool> Fields::Bool(const char* name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) Refuse(PathOf(name), "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::String(const char* name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) Refuse(PathOf(name), "a string");
  return value->get<std::string>();
}

const Json& Fields::Required(const char* name) {
  const Json* value = Any(name);
  if (value == nullptr) throw InvalidField(PathOf(name), "is missing");
  return *value;
}

std::string Fields::RequiredString(const char* name) {
  Required(name);
  return *String(name);
}

const Json* Fields::List(const char* name) {
  const Json* value = Any(name);
  if (value != nullptr && !value->is_array()) Refuse(PathOf(name), "a list");
  return value;
}

std::vector<std::string> Fields::Strings(const char* name, const char* expected) {
  const Json* list = Any(name);
  if (list == nullptr) return {};
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!list->is_array() || !std::all_of(list->begin(), list->end(), is_text))
    Refuse(PathOf(name), expected);
  return list->get<std::vector<std::string>>();
}

std::optional<double> Fields::Number(const char* name) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (!IsNumber(*value)) Refuse(PathOf(name), "a number");
  return NumberOf(*value);
}

std::optional<int64_t> Fields::Integer(const char* name, int64_t low, int64_t high) {
  const Json* value = Any(name);
  if (value == nullptr) return std::nullopt;
  if (!IsBetween(*value, low, high))
    Refuse(PathOf(name),
           "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return value->get<int64_t>();
}

std::vector<int32_t> Fields::Tokens(const char* name) {
  const Json* value = Any(name);
  return value == nullptr ? std::vector<int32_t>() : TokensOf(*value, PathOf(name));
}

void Fields::Ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void Fields::RefuseUnless(std::initializer_list<Neutral> members) {
  for (const Neutral& member : members) {
    const Json* value = Any(member.name);
    if (value == nullptr || *value == false || (value->is_structured() && value->empty()) ||
        *value == "")
      continue;
    const auto same = [&](const Json& neutral) {
      return IsNumber(*value) && neutral.is_number() ? NumberOf(*value) == NumberOf(neutral)
                                                     : *value == neutral;
    };
    if (std::none_of(member.values.begin(), member.values.end(), same))
      throw InvalidField(PathOf(member.name), "is not supported");
  }
}

void Fields::LeaveOutOthers() const {
  for (const auto& [name, value] : object_.items()) {
    if (value.is_null() || known_.contains(name)) continue;
    if (rules_.strict) throw InvalidField(PathOf(name), "is not supported");
    rules_.Say("the field " + KindOfPlace(PathOf(name)) + " is ignored");
  }
}

std::string KindOfPlace(const std::string& path) {
  std::string kind;
  bool in_index = false;
  for (const char c : path) {
    if (c == ']') in_index = false;
    if (!in_index) kind += c;
    if (c == '[') in_index = true;
  }
  return kind;
}

std::vector<int32_t> TokensOf(const Json& list, const std::string& path) {
  if (!list.is_array()) Refuse(path, "a list of token ids");
  std::vector<int32_t> tokens;
  for (const Json& value : list) {
    if (!IsBetween(value, 0, std::numeric_limits<int32_t>::max()))
      Refuse(path + "[" + std::to_string(tokens.size()) + "]", "a token id");
    tokens.push_back(value.get<int32_t>());
  }
  return tokens;
}

}  // namespace server
