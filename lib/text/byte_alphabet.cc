// SPDX-License-Identifier: Apache-2.0
#include "lib/text/byte_alphabet.h"

#include <array>

namespace dsv4 {
namespace {

constexpr int kCodePoints = 256 + 68;  // the highest is U+0143

// Printable bytes of Latin-1 stand for themselves; the other 68, in order, are U+0100 and on.
constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> code_point_of_byte{};
  std::array<int16_t, kCodePoints> byte_of_code_point{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of_code_point.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = IsPrintable(byte) ? byte : next++;
    alphabet.code_point_of_byte[byte] = static_cast<uint16_t>(code_point);
    alphabet.byte_of_code_point[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.code_point_of_byte[0xAD] == kCodePoints - 1);

}  // namespace

std::string AlphabetCharacter(uint8_t byte) {
  const int code_point = kAlphabet.code_point_of_byte[byte];
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

std::optional<std::string> AlphabetBytes(absl::string_view token) {
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    int code_point = static_cast<uint8_t>(token[i]);
    if (code_point >= 0x80) {
      // Two bytes of UTF-8 reach U+07FF, which is more than enough.
      if (code_point >= 0xE0 || i + 1 == token.size()) return std::nullopt;
      code_point = (code_point & 0x1F) << 6 | (static_cast<uint8_t>(token[++i]) & 0x3F);
    }
    const int byte = code_point < kCodePoints ? kAlphabet.byte_of_code_point[code_point] : -1;
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace dsv4
