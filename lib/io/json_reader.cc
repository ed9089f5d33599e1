// SPDX-License-Identifier: Apache-2.0
// ReadJson, byte by byte: it keeps the text of numbers, and no parser for JSON takes the dialects.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/hex_number.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/io/json.h"

namespace dsv4 {
namespace {

// Takes decimal digits off the front of *text; false when there are none.
bool TakeDigits(absl::string_view* text) {
  size_t digits = 0;
  while (digits < text->size() && absl::ascii_isdigit((*text)[digits])) ++digits;
  text->remove_prefix(digits);
  return digits > 0;
}

// Takes a number off the front of *text; on failure *text is undefined.
bool TakeNumber(absl::string_view* text) {
  absl::ConsumePrefix(text, "-");
  if (!absl::ConsumePrefix(text, "0") && !TakeDigits(text)) return false;
  if (absl::ConsumePrefix(text, ".") && !TakeDigits(text)) return false;
  if (absl::ConsumePrefix(text, "e") || absl::ConsumePrefix(text, "E")) {
    if (!absl::ConsumePrefix(text, "+")) absl::ConsumePrefix(text, "-");
    if (!TakeDigits(text)) return false;
  }
  return text->empty() || !absl::ascii_isdigit(text->front());  // behind a leading zero
}

bool IsHighSurrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDBFF; }
bool IsLowSurrogate(uint32_t c) { return c >= 0xDC00 && c <= 0xDFFF; }

// Appends a code point; for a surrogate, the three bytes of its number.
void AppendUtf8(uint32_t c, std::string* out) {
  const auto continuation = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | (c >> shift & 0x3F)));
  };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    continuation(0);
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    continuation(6);
    continuation(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

// An array or object whose end has not been read.
class OpenContainer {
 public:
  explicit OpenContainer(bool is_object) : is_object_(is_object) {}

  bool is_object() const { return is_object_; }
  absl::string_view end() const { return is_object_ ? "}" : "]"; }

  // The key of the next member of an object.
  void SetKey(std::string key) { key_ = std::move(key); }

  // A key that an object repeats keeps its first place and takes the last value.
  void Add(JsonValue value) {
    if (!is_object_) {
      items_.push_back(std::move(value));
    } else if (JsonMember* old = Find(key_)) {
      old->value = std::move(value);
    } else {
      if (!places_.empty()) places_.emplace(key_, members_.size());
      members_.push_back({std::move(key_), std::move(value)});
    }
  }

  JsonValue Close() && {
    return is_object_ ? JsonValue::FromObject(std::move(members_))
                      : JsonValue::FromArray(std::move(items_));
  }

 private:
  // Most objects are so small that a table would cost more than it saves.
  static constexpr size_t kMaxSearched = 16;

  JsonMember* Find(const std::string& key) {
    if (members_.size() <= kMaxSearched) {
      const auto it = std::find_if(members_.begin(), members_.end(),
                                   [&](const JsonMember& member) { return member.key == key; });
      return it == members_.end() ? nullptr : &*it;
    }
    if (places_.empty()) {
      for (size_t i = 0; i < members_.size(); ++i) places_.emplace(members_[i].key, i);
    }
    const auto it = places_.find(key);
    return it == places_.end() ? nullptr : &members_[it->second];
  }

  bool is_object_;
  std::vector<JsonValue> items_;
  std::vector<JsonMember> members_;
  StringMap<size_t> places_;  // by key, once there are more than searched
  std::string key_;
};

class JsonReader {
 public:
  JsonReader(absl::string_view text, absl::string_view source, const JsonDialect& dialect)
      : text_(text), source_(source), dialect_(dialect) {}

  absl::StatusOr<JsonValue> Read() {
    at_ = dialect_.surrogates ? ValidWtf8Prefix(text_) : ValidUtf8Prefix(text_);
    if (at_ < text_.size()) return Error("not UTF-8");
    at_ = 0;
    Take(kUtf8ByteOrderMark);
    SkipSpace();
    DSV4_ASSIGN_OR_RETURN(JsonValue root, ReadValue());
    SkipSpace();
    if (at_ < text_.size()) return Error("text after the document");
    return root;
  }

 private:
  std::string Place() const {
    const absl::string_view before = text_.substr(0, at_);
    const size_t line_start = before.rfind('\n') + 1;  // 0 when there is none
    return absl::StrCat(source_, ": line ", 1 + std::count(before.begin(), before.end(), '\n'),
                        ", column ", at_ - line_start + 1, ": ");
  }

  absl::Status Error(absl::string_view reason) const { return Corrupt(Place(), reason); }

  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Take(absl::string_view word) {
    if (!absl::StartsWith(text_.substr(at_), word)) return false;
    at_ += word.size();
    return true;
  }

  // Open containers are in a list, so that nesting cannot exhaust the thread's stack.
  absl::StatusOr<JsonValue> ReadValue() {
    std::vector<OpenContainer> open;
    while (true) {
      JsonValue value;
      if (Peek() == '{' || Peek() == '[') {
        if (open.size() == dialect_.max_depth) {
          return Unsupported(Place(), "nested deeper than ", dialect_.max_depth);
        }
        open.emplace_back(Peek() == '{');
        ++at_;
        SkipSpace();
        if (!Take(open.back().end())) {
          DSV4_RETURN_IF_ERROR(ReadKeyOf(&open.back()));
          continue;
        }
        value = std::move(open.back()).Close();
        open.pop_back();
      } else {
        DSV4_ASSIGN_OR_RETURN(value, ReadScalar());
      }
      while (true) {
        if (open.empty()) return value;
        open.back().Add(std::move(value));
        SkipSpace();
        if (!Take(open.back().end())) break;
        value = std::move(open.back()).Close();
        open.pop_back();
      }
      if (!Take(",")) return Error(absl::StrCat("neither ',' nor '", open.back().end(), "'"));
      SkipSpace();
      DSV4_RETURN_IF_ERROR(ReadKeyOf(&open.back()));
    }
  }

  // Up to the value that follows the key; nothing in an array.
  absl::Status ReadKeyOf(OpenContainer* container) {
    if (!container->is_object()) return absl::OkStatus();
    if (Peek() != '"') return Error("no key in double quotes");
    std::string key;
    DSV4_RETURN_IF_ERROR(ReadString(&key));
    container->SetKey(std::move(key));
    SkipSpace();
    if (!Take(":")) return Error("no ':' after a key");
    SkipSpace();
    return absl::OkStatus();
  }

  absl::StatusOr<JsonValue> ReadScalar() {
    if (Peek() == '"') {
      std::string text;
      DSV4_RETURN_IF_ERROR(ReadString(&text));
      return JsonValue::FromString(std::move(text));
    }
    if (Take("null")) return JsonValue();
    if (Take("true")) return JsonValue::FromBool(true);
    if (Take("false")) return JsonValue::FromBool(false);
    for (const absl::string_view name : {"NaN", "Infinity", "-Infinity"}) {
      if (dialect_.non_finite && Take(name)) return JsonValue::FromNumberText(std::string(name));
    }
    if (Peek() == '-' || absl::ascii_isdigit(Peek())) return ReadNumber();
    return Error("not a value");
  }

  absl::StatusOr<JsonValue> ReadNumber() {
    absl::string_view rest = text_.substr(at_);
    if (!TakeNumber(&rest)) return Error("not a number");
    const absl::string_view number = text_.substr(at_, text_.size() - at_ - rest.size());
    if (dialect_.max_integer_digits > 0 &&
        number.size() > dialect_.max_integer_digits + (number[0] == '-') &&
        number.find_first_of(".eE") == absl::string_view::npos) {
      return Error(
          absl::StrCat("an integer of more than ", dialect_.max_integer_digits, " digits"));
    }
    at_ += number.size();
    return JsonValue::FromNumberText(std::string(number));
  }

  char CharAt(size_t place) const { return place < text_.size() ? text_[place] : '\0'; }

  // REQUIRES: at the opening quote.
  absl::Status ReadString(std::string* out) {
    ++at_;
    while (true) {
      const size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        ++at_;
      }
      out->append(text_.data() + start, at_ - start);
      if (at_ == text_.size()) return Error("a string without its end");
      if (Take("\"")) return absl::OkStatus();
      if (text_[at_] != '\\') return Error("a control character in a string");
      DSV4_RETURN_IF_ERROR(ReadEscape(out));
    }
  }

  // REQUIRES: at a backslash.
  absl::Status ReadEscape(std::string* out) {
    static constexpr absl::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char name = CharAt(at_ + 1);
    if (name == 'u') {
      const size_t start = at_;
      uint32_t c = 0;
      if (!ReadUnicodeEscape(&c)) return Error("bad escape in a string");
      const size_t after = at_;
      uint32_t low = 0;
      if (IsHighSurrogate(c) && ReadUnicodeEscape(&low) && IsLowSurrogate(low)) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      } else if (!dialect_.surrogates && (IsHighSurrogate(c) || IsLowSurrogate(c))) {
        at_ = start;
        return Error("unpaired surrogate escape in a string");
      } else {
        at_ = after;
      }
      AppendUtf8(c, out);
      return absl::OkStatus();
    }
    const size_t which = name == '\0' ? absl::string_view::npos : kNames.find(name);
    if (which == absl::string_view::npos) return Error("bad escape in a string");
    out->push_back(kMeanings[which]);
    at_ += 2;
    return absl::OkStatus();
  }

  // Does not move if there is no "\uXXXX".
  bool ReadUnicodeEscape(uint32_t* c) {
    if (CharAt(at_) != '\\' || CharAt(at_ + 1) != 'u') return false;
    const absl::string_view digits = text_.substr(at_ + 2, 4);
    const std::optional<uint32_t> value = HexNumber(digits);
    if (!value || digits.size() < 4) return false;
    at_ += 6;
    *c = *value;
    return true;
  }

  absl::string_view text_;
  absl::string_view source_;
  const JsonDialect& dialect_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<JsonValue> ReadJson(absl::string_view text, absl::string_view source,
                                   const JsonDialect& dialect) {
  return JsonReader(text, source, dialect).Read();
}

}  // namespace dsv4
