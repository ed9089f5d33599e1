// SPDX-License-Identifier: Apache-2.0
// The tree of json.h, built from simdjson's on-demand walk: unlike its DOM, that walk gives the
// text of numbers. It visits every value, so the whole document is checked.
#include "lib/io/json.h"

#include <algorithm>
#include <memory_resource>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/status_macros.h"
#include "lib/io/git_lfs.h"
#include "lib/io/simdjson_use.h"

namespace dsv4 {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr absl::string_view kBadString = "bad or unpaired escape in a string";

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

// Takes decimal digits off the front of *text; false when there are none.
bool TakeDigits(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  text->remove_prefix(digits);
  return digits > 0;
}

}  // namespace

class JsonReader {
 public:
  // Reads the document as the only element of an array, so that a root is a value like any other.
  JsonReader(absl::string_view text, absl::string_view source, int max_depth)
      : padded_(text.size() + 2),
        source_(source),
        max_depth_(max_depth),
        strings_(new uint8_t[5 * padded_.size() / 3 + simdjson::SIMDJSON_PADDING]),
        next_string_(strings_.get()) {
    char* p = padded_.data();
    if (!p) return;
    *p++ = '[';
    if (!text.empty()) p = std::copy(text.begin(), text.end(), p);
    *p = ']';
  }

  absl::StatusOr<JsonValue> Read() {
    if (!padded_.data()) return NoMemory();
    ChooseJsonInstructions();
    if (const auto error = parser_.iterate(padded_).get(document_)) return OpenError(error);
    ondemand::array roots;
    if (const auto error = document_.get_array().get(roots)) return WalkError(error);
    JsonValue root;
    int count = 0;
    for (auto element : roots) {
      ondemand::value value;
      if (const auto error = element.get(value)) return WalkError(error);
      if (++count > 1) break;
      DSV4_RETURN_IF_ERROR(ReadValue(value, 0, &root));
    }
    if (count == 0) return Corrupt(source_, ": no JSON value");
    const char* rest = nullptr;
    if (!document_.current_location().get(rest)) return ErrorAt(rest, "text after the document");
    return root;
  }

 private:
  absl::Status ErrorAt(const char* place, absl::string_view reason) const {
    const char* begin = padded_.data() + 1;
    const char* at = begin + std::clamp<ptrdiff_t>(place - begin, 0, padded_.size() - 2);
    const char* line = at;
    while (line > begin && line[-1] != '\n') --line;
    return Corrupt(source_, ": line ", 1 + std::count(begin, line, '\n'), ", column ",
                   at - line + 1, ": ", reason);
  }

  absl::Status NoMemory() const { return OutOfHostMemory(source_, ": no memory to read it"); }

  // An error of simdjson's first pass over the whole text, which knows no place.
  absl::Status OpenError(simdjson::error_code error) const {
    if (error == simdjson::MEMALLOC) return NoMemory();
    if (error == simdjson::UTF8_ERROR) {
      const char* end = padded_.data() + padded_.size();
      for (const char* line = padded_.data(); line < end;) {
        const char* line_end = std::find(line, end, '\n');
        if (!simdjson::validate_utf8(line, line_end - line)) return ErrorAt(line, "not UTF-8");
        line = line_end == end ? end : line_end + 1;
      }
    }
    return Corrupt(source_, ": not JSON: ", simdjson::error_message(error));
  }

  absl::Status WalkError(simdjson::error_code error) {
    const char* place = nullptr;
    if (document_.current_location().get(place)) place = padded_.data() + padded_.size();
    return ErrorAt(place, simdjson::error_message(error));
  }

  // REQUIRES: `out` is null. `depth` containers are open around `value`.
  absl::Status ReadValue(ondemand::value& value, int depth, JsonValue* out) {
    ondemand::json_type type;
    if (const auto error = value.type().get(type)) return WalkError(error);
    absl::string_view token = View(value.raw_json_token());
    token = token.substr(0, token.find_last_not_of(" \t\n\r") + 1);
    switch (type) {
      case ondemand::json_type::array:
      case ondemand::json_type::object:
        if (depth == max_depth_) {
          return ErrorAt(token.data(), absl::StrCat("nested deeper than ", max_depth_));
        }
        return type == ondemand::json_type::array ? ReadArray(value, depth + 1, out)
                                                  : ReadObject(value, depth + 1, out);
      case ondemand::json_type::string: {
        std::string_view s;
        ondemand::raw_json_string raw;
        if (value.get_raw_json_string().get(raw) || parser_.unescape(raw, next_string_).get(s)) {
          return ErrorAt(token.data(), kBadString);
        }
        out->data_.emplace<std::string>(s);
        return absl::OkStatus();
      }
      case ondemand::json_type::number:
        // simdjson takes any text up to the next separator for a number token.
        if (absl::string_view rest = token; !TakeJsonNumber(&rest) || !rest.empty()) {
          return ErrorAt(token.data(), "not a number");
        }
        out->data_ = JsonValue::Number{std::string(token)};
        return absl::OkStatus();
      case ondemand::json_type::boolean: {
        bool b = false;
        if (const auto error = value.get_bool().get(b)) return WalkError(error);
        out->data_ = b;
        return absl::OkStatus();
      }
      case ondemand::json_type::null:
        if (token != "null") return ErrorAt(token.data(), "not a value");
        return absl::OkStatus();
    }
    return ErrorAt(token.data(), "not a value");
  }

  absl::Status ReadArray(ondemand::value& value, int depth, JsonValue* out) {
    ondemand::array array;
    if (const auto error = value.get_array().get(array)) return WalkError(error);
    auto& items = out->data_.emplace<std::vector<JsonValue>>();
    for (auto element : array) {
      ondemand::value item;
      if (const auto error = element.get(item)) return WalkError(error);
      DSV4_RETURN_IF_ERROR(ReadValue(item, depth, &items.emplace_back()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadObject(ondemand::value& value, int depth, JsonValue* out) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) return WalkError(error);
    auto& members = out->data_.emplace<std::vector<JsonMember>>();
    // Keys are views into strings_, which lives as long as the document.
    std::pmr::monotonic_buffer_resource memory;
    PooledHashMap<absl::string_view, size_t> places(&memory);
    for (auto field : object) {
      ondemand::field member;
      if (const auto error = std::move(field).get(member)) return WalkError(error);
      const ondemand::raw_json_string raw_key = member.key();
      std::string_view key;
      if (parser_.unescape(raw_key, next_string_).get(key)) {
        return ErrorAt(raw_key.raw() - 1, kBadString);
      }
      const auto [place, is_new] = places.try_emplace(View(key), members.size());
      if (is_new) members.push_back({std::string(key), {}});
      JsonValue& slot = members[place->second].value;
      slot = JsonValue();
      DSV4_RETURN_IF_ERROR(ReadValue(member.value(), depth, &slot));
    }
    return absl::OkStatus();
  }

  simdjson::padded_string padded_;
  absl::string_view source_;
  const int max_depth_;
  // Unescaped strings, one after another. The parser's own memory for them is as large, but
  // simdjson 3.0 does not look whether it got it.
  const std::unique_ptr<uint8_t[]> strings_;
  uint8_t* next_string_;
  ondemand::parser parser_;
  ondemand::document document_;
};

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

bool TakeJsonNumber(absl::string_view* text) {
  absl::ConsumePrefix(text, "-");
  if (!absl::ConsumePrefix(text, "0") && !TakeDigits(text)) return false;
  if (absl::ConsumePrefix(text, ".") && !TakeDigits(text)) return false;
  if (absl::ConsumePrefix(text, "e") || absl::ConsumePrefix(text, "E")) {
    if (!absl::ConsumePrefix(text, "+")) absl::ConsumePrefix(text, "-");
    return TakeDigits(text);
  }
  return true;
}

absl::StatusOr<JsonValue> ParseJson(absl::string_view text, absl::string_view source,
                                    int64_t max_bytes, int max_depth) {
  if (static_cast<int64_t>(text.size()) > max_bytes) {
    return Corrupt(source, ": ", text.size(), " bytes of JSON, at most ", max_bytes, " allowed");
  }
  absl::ConsumePrefix(&text, kUtf8ByteOrderMark);
  if (IsGitLfsPointer(text)) return Corrupt(source, ": is ", kGitLfsPointer);
  return JsonReader(text, source, max_depth).Read();
}

}  // namespace dsv4
