// SPDX-License-Identifier: Apache-2.0
// Expected repairs are what Python's bytes.decode("utf-8", "replace") gives.
#include "lib/base/utf8.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

#define FFFD "\xEF\xBF\xBD"

std::string Repaired(absl::string_view bytes) {
  std::string text;
  if (AppendRepairedUtf8(bytes, &text) < bytes.size()) text += FFFD;
  return text;
}

TEST_CASE("the well-formed start of a text ends at its first bad byte") {
  CHECK(ValidUtf8Prefix("") == 0);
  CHECK(ValidUtf8Prefix("aé你😀") == 10);
  CHECK(ValidUtf8Prefix(absl::string_view("a\0b", 3)) == 3);
  CHECK(ValidUtf8Prefix("\xF4\x8F\xBF\xBF") == 4);  // U+10FFFF
  CHECK(ValidUtf8Prefix("ab\x80") == 2);
  CHECK(ValidUtf8Prefix("é\xC3") == 2);
  CHECK(ValidUtf8Prefix("a\xED\xA0\x80") == 1);      // a surrogate
  CHECK(ValidUtf8Prefix("a\xC1\xBF") == 1);          // overlong
  CHECK(ValidUtf8Prefix("a\xE0\x9F\xBF") == 1);      // overlong
  CHECK(ValidUtf8Prefix("a\xF0\x8F\xBF\xBF") == 1);  // overlong
  CHECK(ValidUtf8Prefix("a\xF4\x90\x80\x80") == 1);  // beyond U+10FFFF
  CHECK(ValidUtf8Prefix("a\xF5\x80\x80\x80") == 1);
}

TEST_CASE("bad bytes are found behind any length of ASCII") {
  for (size_t length = 0; length < 40; ++length) {
    const std::string ascii(length, 'a');
    CHECK(ValidUtf8Prefix(ascii) == length);
    CHECK(ValidUtf8Prefix(ascii + "\x80") == length);
    CHECK(ValidUtf8Prefix(ascii + "é" + ascii + "\xFF") == 2 * length + 2);
  }
}

TEST_CASE("WTF-8 has surrogates as well") {
  CHECK(ValidWtf8Prefix("a\xED\xA0\x80z\xED\xBF\xBF") == 8);
  CHECK(ValidWtf8Prefix("\xED\xA0\xBD\xED\xBA\x80é") == 8);
  CHECK(ValidWtf8Prefix("é\xED\xA0") == 2);
  CHECK(ValidWtf8Prefix("\xED\xA0\x80\xFF") == 3);
  CHECK(ValidWtf8Prefix("\xED\xA0\xC0") == 0);
  std::string text;
  AppendSurrogatesReplaced("\xED\xA0\xBD\xED\xBA\x80é\xED\x9F\xBFz\xED\xBF\xBF", &text);
  CHECK(text == FFFD FFFD "é\xED\x9F\xBFz" FFFD);
}

TEST_CASE("each maximal ill-formed part becomes one replacement character") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"aé你😀", "aé你😀"},
      {"\x80", FFFD},
      {"a\x80z", "a" FFFD "z"},
      {"\xC3(", FFFD "("},
      {"\xE4\xBD", FFFD},
      {"\xE4\xBDx", FFFD "x"},
      {"\xF0\x9F\x98", FFFD},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", FFFD "😀"},
      {"\xED\xA0\x80", FFFD FFFD FFFD},
      {"\xC0\x80", FFFD FFFD},
      {"\xE0\x80\x80", FFFD FFFD FFFD},
      {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
      {"\xFF\xFE", FFFD FFFD},
      // The example of the Unicode standard, table 3-8 and after.
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
       "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d"},
  };
  for (const auto& [bytes, text] : cases) CHECK(Repaired(bytes) == text);
}

TEST_CASE("an incomplete character at the end is left for later") {
  std::string text;
  CHECK(AppendRepairedUtf8("ab\xE4\xBD", &text) == 2);
  CHECK(text == "ab");
  text.clear();
  CHECK(AppendRepairedUtf8("\xF0\x9F\x98", &text) == 0);
  CHECK(text.empty());
  CHECK(AppendRepairedUtf8("\xE0\x80", &text) == 2);  // no byte can complete it
  CHECK(text == FFFD FFFD);
}

}  // namespace
}  // namespace dsv4
