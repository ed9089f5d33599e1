// SPDX-License-Identifier: Apache-2.0
#include "lib/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace dsv4 {
namespace {

constexpr size_t kSurrogateBytes = 3;

bool BeginsWithSurrogate(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  return text.size() >= kSurrogateBytes && byte(0) == 0xED && byte(1) >= 0xA0 && byte(1) <= 0xBF &&
         byte(2) >= 0x80 && byte(2) <= 0xBF;
}

}  // namespace

Utf8Unit FirstUtf8Unit(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8Unit::Kind::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Unit::Kind::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  uint8_t low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Unit::Kind::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Unit::Kind::kInvalid, i};
    low = 0x80, high = 0xBF;
  }
  return {Utf8Unit::Kind::kCharacter, length};
}

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    // ASCII, eight bytes at a time.
    for (uint64_t bytes; text.size() - i >= sizeof bytes; i += sizeof bytes) {
      std::memcpy(&bytes, text.data() + i, sizeof bytes);
      if (bytes & 0x8080808080808080) break;
    }
    if (i == text.size()) break;
    const Utf8Unit unit = FirstUtf8Unit(text.substr(i));
    if (unit.kind != Utf8Unit::Kind::kCharacter) break;
    i += unit.length;
  }
  return i;
}

size_t AppendRepairedUtf8(absl::string_view bytes, std::string* out) {
  size_t i = 0;
  while (i < bytes.size()) {
    const size_t valid = ValidUtf8Prefix(bytes.substr(i));
    out->append(bytes.data() + i, valid);
    i += valid;
    if (i == bytes.size()) break;
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(i));
    if (unit.kind == Utf8Unit::Kind::kIncomplete) break;
    out->append(kReplacementCharacter.data(), kReplacementCharacter.size());
    i += unit.length;
  }
  return i;
}

size_t ValidWtf8Prefix(absl::string_view text) {
  size_t i = ValidUtf8Prefix(text);
  while (BeginsWithSurrogate(text.substr(i))) {
    i += kSurrogateBytes;
    i += ValidUtf8Prefix(text.substr(i));
  }
  return i;
}

void AppendSurrogatesReplaced(absl::string_view text, std::string* out) {
  while (true) {
    const size_t valid = ValidUtf8Prefix(text);
    out->append(text.data(), valid);
    text.remove_prefix(valid);
    if (!BeginsWithSurrogate(text)) return;
    out->append(kReplacementCharacter.data(), kReplacementCharacter.size());
    text.remove_prefix(kSurrogateBytes);
  }
}

}  // namespace dsv4
