// SPDX-License-Identifier: Apache-2.0
// json.loads: recursive descent over bytes. simdjson refuses the dialect's numbers and surrogates.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/text/python_json.h"
#include "lib/text/unicode.h"

namespace dsv4 {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsHighSurrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDBFF; }
bool IsLowSurrogate(uint32_t c) { return c >= 0xDC00 && c <= 0xDFFF; }

// Of a surrogate the three bytes of its number.
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

// The members of an object: a repeated key keeps its first place and takes the last value.
class MemberList {
 public:
  void Set(std::string key, JsonValue value) {
    JsonMember* old = Find(key);
    if (old) {
      old->value = std::move(value);
      return;
    }
    if (!places_.empty()) places_.emplace(key, members_.size());
    members_.push_back({std::move(key), std::move(value)});
  }

  std::vector<JsonMember> Take() && { return std::move(members_); }

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
      for (const JsonMember& member : members_) places_.emplace(member.key, places_.size());
    }
    const auto it = places_.find(key);
    return it == places_.end() ? nullptr : &members_[it->second];
  }

  std::vector<JsonMember> members_;
  absl::flat_hash_map<std::string, size_t> places_;  // by key, once there are more than searched
};

class PythonJsonReader {
 public:
  PythonJsonReader(absl::string_view text, absl::string_view source)
      : text_(text), source_(source) {}

  absl::StatusOr<JsonValue> Read() {
    at_ = ValidWtf8Prefix(text_);
    if (at_ < text_.size()) return Error("not UTF-8");
    at_ = 0;
    SkipSpace();
    DSV4_ASSIGN_OR_RETURN(JsonValue root, ReadValue(0));
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

  // `depth` containers are open.
  absl::StatusOr<JsonValue> ReadValue(int depth) {
    switch (Peek()) {
      case '{':
      case '[':
        if (depth == kMaxPythonJsonDepth) {
          return Unsupported(Place(), "nested deeper than ", kMaxPythonJsonDepth);
        }
        return Peek() == '{' ? ReadObject(depth + 1) : ReadArray(depth + 1);
      case '"': {
        std::string text;
        DSV4_RETURN_IF_ERROR(ReadString(&text));
        return JsonValue::FromString(std::move(text));
      }
      case 'n':
        if (Take("null")) return JsonValue();
        break;
      case 't':
        if (Take("true")) return JsonValue::FromBool(true);
        break;
      case 'f':
        if (Take("false")) return JsonValue::FromBool(false);
        break;
      default:
        for (const absl::string_view name : {"NaN", "Infinity", "-Infinity"}) {
          if (Take(name)) return JsonValue::FromNumberText(std::string(name));
        }
        if (Peek() == '-' || IsDigit(Peek())) return ReadNumber();
    }
    return Error("not a value");
  }

  absl::StatusOr<JsonValue> ReadArray(int depth) {
    std::vector<JsonValue> items;
    ++at_;
    SkipSpace();
    if (Take("]")) return JsonValue::FromArray(std::move(items));
    while (true) {
      DSV4_ASSIGN_OR_RETURN(JsonValue item, ReadValue(depth));
      items.push_back(std::move(item));
      SkipSpace();
      if (Take("]")) return JsonValue::FromArray(std::move(items));
      if (!Take(",")) return Error("neither ',' nor ']' after an item");
      SkipSpace();
    }
  }

  absl::StatusOr<JsonValue> ReadObject(int depth) {
    MemberList members;
    ++at_;
    SkipSpace();
    if (Take("}")) return JsonValue::FromObject({});
    while (true) {
      if (Peek() != '"') return Error("no key in double quotes");
      std::string key;
      DSV4_RETURN_IF_ERROR(ReadString(&key));
      SkipSpace();
      if (!Take(":")) return Error("no ':' after a key");
      SkipSpace();
      DSV4_ASSIGN_OR_RETURN(JsonValue value, ReadValue(depth));
      members.Set(std::move(key), std::move(value));
      SkipSpace();
      if (Take("}")) return JsonValue::FromObject(std::move(members).Take());
      if (!Take(",")) return Error("neither ',' nor '}' after a member");
      SkipSpace();
    }
  }

  absl::StatusOr<JsonValue> ReadNumber() {
    const size_t start = at_;
    Take("-");
    const size_t digits = at_;
    SkipDigits();
    if (at_ == digits) return Error("not a number");
    // A digit after a leading zero is left over, and then refused as no ',' or end.
    if (text_[digits] == '0') at_ = digits + 1;
    const size_t digit_count = at_ - digits;
    const bool has_fraction = Peek() == '.' && IsDigit(CharAt(at_ + 1));
    if (has_fraction) {
      ++at_;
      SkipDigits();
    }
    const bool has_exponent = ExponentFollows();
    if (has_exponent) {
      at_ += 2;
      SkipDigits();
    }
    if (!has_fraction && !has_exponent && digit_count > kMaxPythonIntegerDigits) {
      at_ = start;
      return Error(absl::StrCat("an integer of more than ", kMaxPythonIntegerDigits, " digits"));
    }
    return JsonValue::FromNumberText(std::string(text_.substr(start, at_ - start)));
  }

  char CharAt(size_t place) const { return place < text_.size() ? text_[place] : '\0'; }

  void SkipDigits() {
    while (IsDigit(Peek())) ++at_;
  }

  bool ExponentFollows() const {
    if (Peek() != 'e' && Peek() != 'E') return false;
    const char next = CharAt(at_ + 1);
    return IsDigit(next) || ((next == '+' || next == '-') && IsDigit(CharAt(at_ + 2)));
  }

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
      uint32_t c = 0;
      if (!ReadUnicodeEscape(&c)) return Error("bad escape in a string");
      const size_t after = at_;
      uint32_t low = 0;
      if (IsHighSurrogate(c) && ReadUnicodeEscape(&low) && IsLowSurrogate(low)) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
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

  // Stays where it was when no "\uXXXX" is there.
  bool ReadUnicodeEscape(uint32_t* c) {
    if (CharAt(at_) != '\\' || CharAt(at_ + 1) != 'u') return false;
    uint32_t value = 0;
    for (size_t i = 2; i < 6; ++i) {
      const int digit = HexDigit(CharAt(at_ + i));
      if (digit < 0) return false;
      value = value << 4 | digit;
    }
    at_ += 6;
    *c = value;
    return true;
  }

  absl::string_view text_;
  absl::string_view source_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<JsonValue> ParsePythonJson(absl::string_view text, absl::string_view source) {
  return PythonJsonReader(text, source).Read();
}

}  // namespace dsv4
