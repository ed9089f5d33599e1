// SPDX-License-Identifier: Apache-2.0
// Languages of characters and strings in each encoding of text.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// A set of code points, as sorted ranges that do not touch. Languages leave out surrogates, which
// are not characters.
class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<std::pair<uint32_t, uint32_t>> ranges)
      : CharSet(std::vector<std::pair<uint32_t, uint32_t>>(ranges)) {}
  // In any order.
  explicit CharSet(std::vector<std::pair<uint32_t, uint32_t>> ranges);
  static CharSet All() { return {{0, kMaxCodePoint}}; }
  CharSet Union(const CharSet& other) const;
  CharSet Complement() const;
  CharSet Intersection(const CharSet& other) const;
  bool Contains(uint32_t code_point) const;
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const { return ranges_; }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

enum class Encoding {
  kUtf8,
  kJson,          // between the quotes of a JSON string, with every escape
  kJsonInMarkup,  // the same, except that U+FF5C, which markers contain, must be an escape
};

// One character of `set`.
Expr CharOf(ExpressionPool* pool, const CharSet& set, Encoding encoding);
// `text`, which is UTF-8.
Expr TextOf(ExpressionPool* pool, absl::string_view text, Encoding encoding);
// Removes the first code point of *text and returns it. REQUIRES: *text is UTF-8 and not empty.
uint32_t TakeCodePoint(absl::string_view* text);

}  // namespace dsv4::grammar
