// SPDX-License-Identifier: Apache-2.0
#include "lib/io/json.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "lib/base/error.h"
#include "lib/io/git_lfs.h"

namespace dsv4 {

// The values left to copy are in a list, so that nesting needs no stack.
JsonValue::JsonValue(const JsonValue& other) {
  struct Copy {
    const JsonValue* from;
    JsonValue* to;
  };
  std::vector<Copy> copies = {{&other, this}};
  while (!copies.empty()) {
    const auto [from, to] = copies.back();
    copies.pop_back();
    if (const std::vector<JsonValue>* items = from->AsArray()) {
      auto& made = to->data_.emplace<std::vector<JsonValue>>(items->size());
      for (size_t i = 0; i < items->size(); ++i) copies.push_back({&(*items)[i], &made[i]});
    } else if (const std::vector<JsonMember>* members = from->AsObject()) {
      auto& made = to->data_.emplace<std::vector<JsonMember>>(members->size());
      for (size_t i = 0; i < members->size(); ++i) {
        made[i].key = (*members)[i].key;
        copies.push_back({&(*members)[i].value, &made[i].value});
      }
    } else {
      to->data_ = from->data_;
    }
  }
}

JsonValue& JsonValue::operator=(JsonValue other) noexcept {
  data_.swap(other.data_);
  return *this;
}

// Takes the tree apart without memory of its own: on the way down each container keeps in its last
// place, whose value is next, the one around it.
JsonValue::~JsonValue() {
  if (Last() == nullptr) return;
  JsonValue value, around;
  value.data_.swap(data_);
  while (true) {
    while (JsonValue* last = value.Last()) {
      if (last->Last() == nullptr) {
        value.DropLast();
        continue;
      }
      JsonValue inner;
      inner.data_.swap(last->data_);
      last->data_.swap(around.data_);
      around.data_.swap(value.data_);
      value.data_.swap(inner.data_);
    }
    JsonValue* place = around.Last();
    if (place == nullptr) return;
    JsonValue next;
    next.data_.swap(place->data_);
    around.DropLast();
    value.data_.swap(around.data_);
    around.data_.swap(next.data_);
  }
}

JsonValue* JsonValue::Last() {
  if (auto* items = std::get_if<std::vector<JsonValue>>(&data_)) {
    return items->empty() ? nullptr : &items->back();
  }
  auto* members = std::get_if<std::vector<JsonMember>>(&data_);
  return members == nullptr || members->empty() ? nullptr : &members->back().value;
}

void JsonValue::DropLast() {
  if (auto* items = std::get_if<std::vector<JsonValue>>(&data_)) {
    items->pop_back();
  } else {
    std::get<std::vector<JsonMember>>(data_).pop_back();
  }
}

JsonValue::JsonValue(Data data) : data_(std::move(data)) {}

JsonValue JsonValue::FromBool(bool value) { return JsonValue(Data(value)); }

JsonValue JsonValue::FromNumberText(std::string text) {
  return JsonValue(Data(Number{std::move(text)}));
}

JsonValue JsonValue::FromString(std::string text) { return JsonValue(Data(std::move(text))); }

JsonValue JsonValue::FromArray(std::vector<JsonValue> items) {
  return JsonValue(Data(std::move(items)));
}

JsonValue JsonValue::FromObject(std::vector<JsonMember> members) {
  return JsonValue(Data(std::move(members)));
}

absl::string_view JsonValue::KindName() const {
  static constexpr absl::string_view kNames[] = {"null",   "boolean", "number",
                                                 "string", "array",   "object"};
  return kNames[data_.index()];
}

std::optional<bool> JsonValue::AsBool() const {
  const bool* b = std::get_if<bool>(&data_);
  return b ? std::optional<bool>(*b) : std::nullopt;
}

const std::string* JsonValue::AsString() const { return std::get_if<std::string>(&data_); }

const std::string* JsonValue::AsNumberText() const {
  const Number* number = std::get_if<Number>(&data_);
  return number ? &number->text : nullptr;
}

std::optional<int64_t> JsonValue::AsInt64() const {
  const std::string* text = AsNumberText();
  int64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return value;
}

const std::vector<JsonValue>* JsonValue::AsArray() const {
  return std::get_if<std::vector<JsonValue>>(&data_);
}

const std::vector<JsonMember>* JsonValue::AsObject() const {
  return std::get_if<std::vector<JsonMember>>(&data_);
}

const JsonValue* JsonValue::Find(absl::string_view key) const {
  const std::vector<JsonMember>* members = AsObject();
  if (!members) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view source,
                                    int64_t max_bytes, size_t max_depth) {
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return Corrupt(source, ": ", text.size(), " bytes of JSON, at most ", max_bytes, " allowed");
  }
  if (IsGitLfsPointer(text)) return Corrupt(source, ": is ", kGitLfsPointer);
  absl::StatusOr<JsonValue> value = ReadJson(text, source, {.max_depth = max_depth});
  if (IsUnsupported(value.status())) return Corrupt(value.status().message());
  return value;
}

}  // namespace dsv4
