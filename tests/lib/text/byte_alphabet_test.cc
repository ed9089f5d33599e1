// SPDX-License-Identifier: Apache-2.0
// Expected characters are those of GPT-2's bytes_to_unicode.
#include "lib/text/byte_alphabet.h"

#include <set>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("printable bytes stand for themselves, the others are U+0100 and on") {
  CHECK(AlphabetCharacter('!') == "!");
  CHECK(AlphabetCharacter('~') == "~");
  CHECK(AlphabetCharacter(0x00) == "\u0100");
  CHECK(AlphabetCharacter('\n') == "\u010a");
  CHECK(AlphabetCharacter(' ') == "\u0120");
  CHECK(AlphabetCharacter(0x7F) == "\u0121");
  CHECK(AlphabetCharacter(0xA0) == "\u0142");
  CHECK(AlphabetCharacter(0xA1) == "\u00a1");
  CHECK(AlphabetCharacter(0xAC) == "\u00ac");
  CHECK(AlphabetCharacter(0xAD) == "\u0143");
  CHECK(AlphabetCharacter(0xAE) == "\u00ae");
  CHECK(AlphabetCharacter(0xFF) == "\u00ff");
}

TEST_CASE("every byte comes back from its character") {
  std::set<std::string> characters;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = AlphabetCharacter(static_cast<uint8_t>(byte));
    CHECK(AlphabetBytes(character) == std::string(1, static_cast<char>(byte)));
    characters.insert(character);
  }
  CHECK(characters.size() == 256);
  CHECK(AlphabetBytes("\u0120the\u010a") == " the\n");
  CHECK(AlphabetBytes("") == "");
}

TEST_CASE("characters outside the alphabet have no bytes") {
  for (const char* token :
       {" ", "\n", "\u007f", "\u00a0", "\u00ad", "\u0144", "\u07ff", "｜", "a｜", "😀"}) {
    CHECK(!AlphabetBytes(token));
  }
}

}  // namespace
}  // namespace dsv4
