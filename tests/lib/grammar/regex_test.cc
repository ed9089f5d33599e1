// SPDX-License-Identifier: Apache-2.0
// Regular expressions: what they match by ECMA-262, what is refused, and hostile patterns.
#include "lib/grammar/regex.h"

#include <string>
#include <utility>

#include "lib/base/error.h"
#include "tests/lib/grammar/language.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

absl::StatusOr<Language> Regex(absl::string_view pattern, Anchoring anchoring = Anchoring::kWhole,
                               Encoding encoding = Encoding::kUtf8) {
  return Compiled(
      [&](ExpressionPool* pool) { return RegexLanguage(pool, pattern, encoding, anchoring); });
}

TEST_CASE("a whole text matches") {
  auto date = Regex("\\d{4}-(0[1-9]|1[0-2])");
  REQUIRE_OK(date);
  CHECK(date->Matches("2024-12"));
  CHECK_FALSE(date->Matches("2024-13"));
  CHECK_FALSE(date->Matches("x2024-12"));
  CHECK(date->Begins("2024-1"));
  CHECK_FALSE(date->Begins("2024-2"));
  auto dots = Regex("a.c[^x]");
  REQUIRE_OK(dots);
  CHECK(
      dots->Matches("a\xE2\x82\xAC"
                    "c\xF0\x9F\x8E\x89"));
  CHECK_FALSE(dots->Matches("a\nc1"));
  CHECK_FALSE(dots->Matches("abcx"));
}

TEST_CASE("a search is open where no anchor says otherwise") {
  auto part = Regex("ab+c", Anchoring::kSearch);
  REQUIRE_OK(part);
  CHECK(part->Matches("xxabbbcyy"));
  CHECK_FALSE(part->Matches("xxac"));
  auto anchored = Regex("^a|b$", Anchoring::kSearch);
  REQUIRE_OK(anchored);
  CHECK(anchored->Matches("axx"));
  CHECK(anchored->Matches("xxb"));
  CHECK_FALSE(anchored->Matches("xax"));
  auto empty = Regex("^$", Anchoring::kSearch);
  REQUIRE_OK(empty);
  CHECK(empty->Matches(""));
  CHECK_FALSE(empty->Matches("a"));
}

TEST_CASE("within JSON every escape of a character is the character") {
  auto quote = Regex("a\"\xC3\xA9", Anchoring::kWhole, Encoding::kJson);
  REQUIRE_OK(quote);
  CHECK(quote->Matches("a\\\"\xC3\xA9"));
  CHECK(quote->Matches("\\u0061\\u0022\\u00E9"));
  CHECK_FALSE(quote->Matches("a\"\xC3\xA9"));
  auto face = Regex("\\u{1F600}", Anchoring::kWhole, Encoding::kJson);
  REQUIRE_OK(face);
  CHECK(face->Matches("\xF0\x9F\x98\x80"));
  CHECK(face->Matches("\\ud83d\\uDE00"));
  CHECK_FALSE(face->Begins("\\ud83e"));
}

TEST_CASE("what is not regular or not a pattern is refused") {
  for (const char* pattern : {"(?=a)", "(?<!a)b", "(a)\\1", "a\\b", "\\p{L}", "a^b", "(a$)*"}) {
    INFO(pattern);
    CHECK(IsUnsupported(Regex(pattern).status()));
  }
  for (const char* pattern :
       {"(", ")", "a**", "[z-a]", "[", "a{2,1}", "\\", "*a", "\\q", "(?<>a)", "\\x1\x10"}) {
    INFO(pattern);
    CHECK(absl::IsInvalidArgument(Regex(pattern).status()));
  }
}

std::string RandomText(int length) {
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < length; ++i) {
    random = random * 1664525 + 1013904223;
    text.push_back((random >> 31) != 0 ? 'a' : 'b');
  }
  return text;
}

TEST_CASE("counts stay counts, however large their product is") {
  for (const char* pattern : {"(a{100000}){100000}", "((a{0,100}){0,100}){0,100}"}) {
    INFO(pattern);
    auto repeated = Regex(pattern);
    REQUIRE_OK(repeated);
    CHECK(repeated->Begins("aaaa"));
    CHECK_FALSE(repeated->Begins("aaab"));
  }
  CHECK(IsUnsupported(Regex("a{100001}").status()));
  CHECK(IsUnsupported(Regex("a{99999999999}").status()));
  CHECK(absl::IsInvalidArgument(Regex("a{-1}").status()));
  CHECK(IsUnsupported(Regex(std::string(5000, '(')).status()));
  CHECK(IsUnsupported(Regex(std::string(kMaxPatternBytes + 1, 'a')).status()));
}

TEST_CASE("a syntax error names its byte and what is expected") {
  const std::pair<const char*, const char*> cases[] = {
      {"ab**", "byte 4 of the pattern: \"*\" has nothing to repeat"},
      {"a]", "byte 2 of the pattern: unmatched \"]\""},
      {"(?<a b>c)", "byte 4 of the pattern: expected a group name"},
      {"(?x)", "expected \"(\", \"(?:\" or \"(?<name>\""},
      {"[\\d-z]", "byte 6 of the pattern: both ends of a range must be characters"},
      {"[z-a]", "the first character of a range is above its last"},
      {"\\y", "unknown escape \\y"},
      {"a{3,2}", "the minimum of {3,2} is above its maximum"}};
  for (const auto& [pattern, message] : cases) {
    REQUIRE_FAILS(Regex(pattern), absl::StatusCode::kInvalidArgument, message);
  }
}

TEST_CASE("a pool that was exhausted matches nothing") {
  // A state for each set of places where the text may end.
  auto sets = Regex(".*a.{10}");
  REQUIRE_OK(sets);
  CHECK(sets->Matches(RandomText(1000) + "abbbbbbbbbb"));
  CHECK_FALSE(sets->Matches(RandomText(1000) + "bbbbbbbbbbb"));
  const auto unseen = sets->After("abababababbbaaaabbbbaaaaabbbbbab");
  sets->pool.AllowWork(10);
  CHECK(sets->pool.Next(unseen, 'a') == kFail);
  CHECK(sets->pool.exhausted());
  CHECK_FALSE(sets->Begins("x"));
}

TEST_CASE("a hostile pattern ends in an error, not in the memory of the host", "[.long]") {
  auto sets = Regex(".*a.{30}");
  REQUIRE_OK(sets);
  CHECK_FALSE(sets->Matches(RandomText(600000) + "b"));
  CHECK(sets->pool.exhausted());
  CHECK(sets->pool.bytes() <= kMaxPoolBytes + (kMaxPoolBytes >> 1));
}

}  // namespace
}  // namespace dsv4::grammar
