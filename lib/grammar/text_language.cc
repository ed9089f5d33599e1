// SPDX-License-Identifier: Apache-2.0
// The language of a range of numbers is built digit by digit: in base 64 for UTF-8, base 16 for
// \uXXXX, base 1024 for a pair of surrogates.
#include "lib/grammar/text_language.h"

#include <algorithm>

#include "absl/functional/function_ref.h"

namespace dsv4::grammar {
namespace {

constexpr uint32_t kFullwidthBar = 0xFF5C;

Expr ByteRange(ExpressionPool* pool, uint32_t low, uint32_t high) {
  ByteSet set;
  for (uint32_t byte = low; byte <= high; ++byte) set.set(byte);
  return pool->Bytes(set);
}

// The numbers low..high of `count` digits. `digit(place, low, high)` is a digit's language; the
// last place is 0.
using DigitFn = absl::FunctionRef<Expr(uint32_t place, uint32_t low, uint32_t high)>;
Expr Digits(ExpressionPool* pool, uint32_t low, uint32_t high, uint32_t count, uint32_t base,
            DigitFn digit) {
  if (count == 0) return kEmpty;
  uint32_t unit = 1;
  for (uint32_t i = 1; i < count; ++i) unit *= base;
  const auto rest = [&](uint32_t from, uint32_t to) {
    return Digits(pool, from, to, count - 1, base, digit);
  };
  uint32_t first = low / unit, last = high / unit;
  if (first == last) {
    return pool->Concat(digit(count - 1, first, last), rest(low % unit, high % unit));
  }
  std::vector<Expr> parts;
  if (low % unit != 0) {
    parts.push_back(pool->Concat(digit(count - 1, first, first), rest(low % unit, unit - 1)));
    ++first;
  }
  if (high % unit != unit - 1) {
    parts.push_back(pool->Concat(digit(count - 1, last, last), rest(0, high % unit)));
    --last;
  }
  if (first <= last) {
    parts.push_back(pool->Concat(digit(count - 1, first, last), rest(0, unit - 1)));
  }
  return pool->AnyOf(std::move(parts));
}

// Calls fn(low, high) for the part of the set in [from, to].
template <class Fn>
void Within(const CharSet& set, uint32_t from, uint32_t to, Fn&& fn) {
  for (const auto& [low, high] : set.ranges()) {
    if (high >= from && low <= to) fn(std::max(low, from), std::min(high, to));
  }
}

Expr Utf8Of(ExpressionPool* pool, const CharSet& set) {
  struct Length {
    uint32_t from, to, bytes, lead;
  };
  static constexpr Length kLengths[] = {{0, 0x7F, 1, 0},
                                        {0x80, 0x7FF, 2, 0xC0},
                                        {0x800, 0xD7FF, 3, 0xE0},
                                        {0xE000, 0xFFFF, 3, 0xE0},
                                        {0x10000, kMaxCodePoint, 4, 0xF0}};
  std::vector<Expr> parts;
  for (const Length& length : kLengths) {
    Within(set, length.from, length.to, [&](uint32_t low, uint32_t high) {
      if (length.bytes == 1) {
        parts.push_back(ByteRange(pool, low, high));
        return;
      }
      parts.push_back(Digits(pool, low, high, length.bytes, 64,
                             [&](uint32_t place, uint32_t first, uint32_t last) {
                               const uint32_t mark = place + 1 == length.bytes ? length.lead : 0x80;
                               return ByteRange(pool, mark + first, mark + last);
                             }));
    });
  }
  return pool->AnyOf(std::move(parts));
}

// \uXXXX for the units low..high.
Expr EscapedUnits(ExpressionPool* pool, uint32_t low, uint32_t high) {
  const auto digit = [&](uint32_t, uint32_t first, uint32_t last) {
    ByteSet set;
    for (uint32_t value = first; value <= last; ++value) {
      set.set(value < 10 ? '0' + value : 'a' + value - 10);
      set.set(value < 10 ? '0' + value : 'A' + value - 10);
    }
    return pool->Bytes(set);
  };
  return pool->Concat(pool->Literal("\\u"), Digits(pool, low, high, 4, 16, digit));
}

Expr EscapesOf(ExpressionPool* pool, const CharSet& set) {
  std::vector<Expr> parts;
  constexpr absl::string_view kCharacters = "\"\\/\b\f\n\r\t", kLetters = "\"\\/bfnrt";
  ByteSet letters;
  for (size_t i = 0; i < kCharacters.size(); ++i) {
    if (set.Contains(static_cast<uint8_t>(kCharacters[i]))) {
      letters.set(static_cast<uint8_t>(kLetters[i]));
    }
  }
  parts.push_back(pool->Concat(pool->Literal("\\"), pool->Bytes(letters)));
  for (const auto& [from, to] : {std::pair{0u, 0xD7FFu}, std::pair{0xE000u, 0xFFFFu}}) {
    Within(set, from, to,
           [&](uint32_t low, uint32_t high) { parts.push_back(EscapedUnits(pool, low, high)); });
  }
  Within(set, 0x10000, kMaxCodePoint, [&](uint32_t low, uint32_t high) {
    parts.push_back(Digits(pool, low - 0x10000, high - 0x10000, 2, 1024,
                           [&](uint32_t place, uint32_t first, uint32_t last) {
                             const uint32_t mark = place == 1 ? 0xD800 : 0xDC00;
                             return EscapedUnits(pool, mark + first, mark + last);
                           }));
  });
  return pool->AnyOf(std::move(parts));
}

}  // namespace

CharSet::CharSet(std::vector<std::pair<uint32_t, uint32_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const auto& [low, high] : ranges) {
    if (low > high) continue;
    if (!ranges_.empty() && low <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, high);
    } else {
      ranges_.push_back({low, high});
    }
  }
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<std::pair<uint32_t, uint32_t>> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::Complement() const {
  CharSet result;
  uint32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > next) result.ranges_.push_back({next, low - 1});
    next = high + 1;
  }
  if (next <= kMaxCodePoint) result.ranges_.push_back({next, kMaxCodePoint});
  return result;
}

CharSet CharSet::Intersection(const CharSet& other) const {
  return Complement().Union(other.Complement()).Complement();
}

bool CharSet::Contains(uint32_t code_point) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
    return range.first <= code_point && code_point <= range.second;
  });
}

Expr CharOf(ExpressionPool* pool, const CharSet& set, Encoding encoding) {
  if (encoding == Encoding::kUtf8) return Utf8Of(pool, set);
  CharSet plain = set.Intersection(CharSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.Complement());
  if (encoding == Encoding::kJsonInMarkup) {
    plain = plain.Intersection(CharSet{{kFullwidthBar, kFullwidthBar}}.Complement());
  }
  return pool->AnyOf({Utf8Of(pool, plain), EscapesOf(pool, set)});
}

uint32_t TakeCodePoint(absl::string_view* text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>((*text)[i]); };
  const uint32_t lead = byte(0);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t code_point = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t i = 1; i < length && i < text->size(); ++i) {
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  text->remove_prefix(std::min(length, text->size()));
  return code_point;
}

Expr TextOf(ExpressionPool* pool, absl::string_view text, Encoding encoding) {
  if (encoding == Encoding::kUtf8) return pool->Literal(text);
  std::vector<Expr> parts;
  while (!text.empty()) {
    const uint32_t code_point = TakeCodePoint(&text);
    parts.push_back(CharOf(pool, {{code_point, code_point}}, encoding));
  }
  return pool->Concat(parts);
}

}  // namespace dsv4::grammar
