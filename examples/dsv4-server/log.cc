// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/log.h"

#include <cstdio>

namespace server {
namespace {

constexpr size_t kMostBytes = 2000;

// The length of the character that `text` begins with; 0 if it is not valid UTF-8 or a control
// character, C1 included.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
  const bool beyond = byte(0) == 0xf4 && byte(1) >= 0x90;
  const bool control = byte(0) == 0xc2 && byte(1) < 0xa0;
  return overlong || surrogate || beyond || control ? 0 : length;
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.size() > kMostBytes) return out + "...";
    if (const size_t length = CharacterLength(text)) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(text[0]));
    out += escaped;
    text.remove_prefix(1);
  }
  return out;
}

void Log(std::string_view text) {
  std::fprintf(stderr, "dsv4-server: %s\n", Printable(text).c_str());
}

}  // namespace server
