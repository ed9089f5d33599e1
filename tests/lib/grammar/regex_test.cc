// SPDX-License-Identifier: Apache-2.0
// Regular expressions: what they match by ECMA-262, what is refused, and hostile patterns.
#include "lib/grammar/regex.h"

#include <string>
#include <utility>
#include <vector>

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

struct Verdicts {
  const char* pattern;
  std::vector<const char*> matching, others;
};

// Of Python 3.11: re.search on all texts of up to three characters of a few, some of them here.
TEST_CASE("assertions, flags and named groups match what Python's re does") {
  const Verdicts cases[] = {
      {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$",
       {"1.1", "-.1", ".1", "-1.", ".11", "-1"},
       {"aA ", "A-.", "b.1", " \n-", "\nb-", " .a"}},
      {"^(?=.*[A-Z])(?=.*\\d).{3,}$",
       {"A1A", ".1A", "A-1", "bA1", "-A1", "1A."},
       {" 1a", "-. ", " A-", ".1a", "\n\n-", " a."}},
      {"^(?!.*\\.\\.)[a-z.]+$",
       {"b.", "a.b", ".ab", "aa", "bab", ".b."},
       {" .1", "\nba", "A-1", "-.-", "-A1", "\nAa"}},
      {"(?=ab)a",
       {"ab-", "-ab", "ab.", "aba", "abb", ".ab"},
       {"b.", "\nAA", "a\nA", ".a-", "-\nb", "A\na"}},
      {"(?!a)[ab]c", {}, {"b  ", "1\na", "ba-", " \nb", " \nA", " .."}},
      {"(?<!a)b",
       {"b-", ".b1", "\n-b", " 1b", "-1b", "1b "},
       {".--", "-1A", ".-a", "\n. ", "1-.", "1a."}},
      {"(?<=a)b$",
       {"\nab", "ab", "Aab", ".ab", "aab", " ab"},
       {" A.", ".a ", "-a1", " b-", "-\n.", "A.b"}},
      {"^[a-z-]+(?<!-)$",
       {"bb", "-b", "--a", "-ba", "-aa", "aaa"},
       {"b\n-", "b\n ", "- .", "\nb1", ".b", " 11"}},
      {"\\bab\\b",
       {"ab-", "\nab", ".ab", "ab", "ab.", "-ab"},
       {"-a-", "\n1a", "\n-a", "\nA1", "\n1 ", "b--"}},
      {"^\\w+\\b.$",
       {"1a-", "Aa ", "ba.", "1 ", "11-", "1a."},
       {"1 -", "b .", "1Ab", ". A", ".bA", "A\n-"}},
      {"\\Bb",
       {"bab", "-ab", ".1b", "Ab ", "ab1", "-Ab"},
       {"\n a", "11-", "ba1", "1a1", "b1 ", "\n-A"}},
      {"(?i)ab",
       {".Ab", "ab1", "1Ab", "Ab1", "Ab ", "AbA"},
       {"A 1", "-bA", " .b", "bA-", "1.a", " AA"}},
      {"^(?i:a)b$", {"Ab", "ab"}, {"a.-", "\n  ", "b -", " A1", "Aa.", "b1-"}},
      {"(?s)a.b",
       {"aab", "aAb", "abb", "a-b", "a.b", "a1b"},
       {"..b", "aa.", "a\n-", ".1 ", "b-A", "-bb"}},
      {"^(?P<x>a)b",
       {"abA", "abb", "ab", "ab-", "ab.", "aba"},
       {". ", "1. ", "bAA", "b1A", "a.-", "-.b"}},
      {"\\Aab\\Z", {"ab"}, {".1b", "A11", "-b", "-a1", " .1", "aAa"}},
      {"^(?:(?!ab)[a-c]+)$",
       {"bab", "b", "ba", "bbb", "aab", "bba"},
       {"a. ", "  a", "ab.", " b-", "-11", "Abb"}},
      {"^(?:x|(?=a)a+)$", {"a", "aaa", "aa"}, {"A--", "\nA", "b1 ", ".1.", ".ab", "b11"}},
      {"(?#c)^a$", {"a"}, {"  ", "...", "a\nb", " A-", "1.a", ".1."}},
      {"^(?!-)[ab-]{1,3}$",
       {"bba", "ba-", "bb", "bab", "ab", "b--"},
       {"a.b", "\naa", "AbA", "\n-A", "-.A", "A.."}},
      {"^(?=a)\\ba",
       {"ab", "a1a", "aa.", "a.A", "a.", "a1."},
       {"-aA", " b-", "A.1", "-b1", ".\n-", "A1b"}},
      {"^a(?=b)bc?$", {"ab"}, {".\n.", "--1", "Aa1", "1.1", "a11", "\n. "}},
      {"^a\\b(?= )",
       {"a .", "a A", "a b", "a 1", "a a", "a  "},
       {"a.", " a.", ".bb", "a1A", "--A", "Aa "}},
      {"^(?!a|b)",
       {"\n.b", "A.A", " \nA", "1A.", ".A ", " \n "},
       {"a--", "a ", "a\n1", "b11", "ab.", "a1-"}},
      {"a(?!b)",
       {"bAa", "\n\na", "baa", "AAa", "\na ", "ba-"},
       {"\n1-", "1b", "1 -", ".b", "-A-", "1A1"}},
  };
  for (const Verdicts& one : cases) {
    INFO(one.pattern);
    for (const Encoding encoding : {Encoding::kUtf8, Encoding::kJson}) {
      auto language = Regex(one.pattern, Anchoring::kSearch, encoding);
      REQUIRE_OK(language);
      const auto encoded = [&](std::string text) {
        if (encoding != Encoding::kJson) return text;
        for (size_t end; (end = text.find('\n')) != std::string::npos;) text.replace(end, 1, "\\n");
        return text;
      };
      for (const char* text : one.matching) {
        INFO("matching: " << text);
        CHECK(language->Matches(encoded(text)));
      }
      for (const char* text : one.others) {
        INFO("not matching: " << text);
        CHECK_FALSE(language->Matches(encoded(text)));
      }
    }
  }
}

TEST_CASE("Unicode properties are those of the standard") {
  // UnicodeData.txt: U+00E9 is Ll, U+0416 Lu and Cyrillic, U+0663 Nd, U+3007 Nl and Han.
  const std::string e_acute = "\xC3\xA9", zhe = "\xD0\x96", three = "\xD9\xA3",
                    zero = "\xE3\x80\x87";
  const Verdicts cases[] = {
      {"\\p{L}", {e_acute.c_str(), zhe.c_str(), "a"}, {three.c_str(), zero.c_str(), "1", ""}},
      {"[\\p{Lu}_]", {zhe.c_str(), "A", "_"}, {e_acute.c_str(), "a"}},
      {"\\p{Uppercase_Letter}", {zhe.c_str()}, {e_acute.c_str()}},
      {"\\P{L}", {three.c_str(), "1"}, {e_acute.c_str(), "a"}},
      {"\\p{gc=Nd}", {three.c_str(), "7"}, {zero.c_str(), "a"}},
      {"\\p{Script=Cyrillic}", {zhe.c_str()}, {e_acute.c_str(), "B"}},
      {"\\p{sc=Han}", {zero.c_str()}, {three.c_str()}},
  };
  for (const Verdicts& one : cases) {
    INFO(one.pattern);
    auto language = Regex(one.pattern);
    REQUIRE_OK(language);
    for (const char* text : one.matching) CHECK(language->Matches(text));
    for (const char* text : one.others) CHECK_FALSE(language->Matches(text));
  }
}

TEST_CASE("what is not regular or not a pattern is refused") {
  for (const char* pattern :
       {"(a)\\1", "a^b", "(a$)*", "((?=a).)*", "a(?:b(?<=ab))c", "^(?:a\\b|b) ?$", "(\\bx)*",
        "(a(?!b))c", "\\p{Nothing}", "(?x)a", "(?m)^a", "(?>a)", "(?P=x)", "(?i)\xC3\xA9"}) {
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
      {"(?y)", "byte 3 of the pattern: expected one of the flags i, m, s and u"},
      {"(?'x')", "expected \"(\", \"(?:\" or \"(?<name>\""},
      {"[\\d-z]", "byte 6 of the pattern: both ends of a range must be characters"},
      {"[z-a]", "the first character of a range is above its last"},
      {"\\y", "unknown escape \\y"},
      {"a{3,2}", "the minimum of {3,2} is above its maximum"}};
  for (const auto& [pattern, message] : cases) {
    REQUIRE_FAILS(Regex(pattern), absl::StatusCode::kInvalidArgument, message);
  }
}

TEST_CASE("a pool that lacks work matches nothing, and goes on with more") {
  // A state for each set of places where the text may end.
  auto sets = Regex(".*a.{10}");
  REQUIRE_OK(sets);
  CHECK(sets->Matches(RandomText(1000) + "abbbbbbbbbb"));
  CHECK_FALSE(sets->Matches(RandomText(1000) + "bbbbbbbbbbb"));
  const auto unseen = sets->After("abababababbbaaaabbbbaaaaabbbbbab");
  sets->pool.AllowWork(10);
  CHECK(sets->pool.Next(unseen, 'a') == kFail);
  CHECK(sets->pool.exhausted());
  CHECK(sets->pool.lacks_only_work());
  sets->pool.AllowWork();
  CHECK(sets->pool.Accepts(sets->pool.Next(unseen, 'a')));
}

TEST_CASE("what was cut short for lack of work changes no later result") {
  // Intersections and complements, whose states are searched for a text that matches.
  for (const char* pattern :
       {"(?!.*ab)(?=.*c.{3}).*", "(?=.*a.{6}).*b.{4}", "((a|ab)(c|bcd)*){3}"}) {
    INFO(pattern);
    auto whole = Regex(pattern), pieces = Regex(pattern);
    REQUIRE_OK(whole);
    REQUIRE_OK(pieces);
    for (const char* text : {"aacaabaaacbcdaaaabbbb", "cacbbbbb", "abcdaabacbcd"}) {
      Expr expected = whole->root, state = pieces->root;
      for (const char* byte = text; *byte != 0; ++byte) {
        whole->pool.AllowWork();
        expected = whole->pool.Next(expected, static_cast<uint8_t>(*byte));
        Expr next = kFail;
        for (int64_t work = 0;; work = 2 * work + 1) {
          pieces->pool.AllowWork(work);
          next = pieces->pool.Next(state, static_cast<uint8_t>(*byte));
          if (!pieces->pool.exhausted()) break;
          REQUIRE(next == kFail);
        }
        state = next;
        REQUIRE((state == kFail) == (expected == kFail));
        REQUIRE(pieces->pool.Accepts(state) == whole->pool.Accepts(expected));
      }
    }
  }
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
