// SPDX-License-Identifier: Apache-2.0
// Grammars in EBNF: what they match, by hand, and what is refused.
#include "lib/grammar/ebnf.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/lib/grammar/language.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

absl::StatusOr<Language> Ebnf(absl::string_view text) {
  return Compiled([&](ExpressionPool* pool) { return EbnfLanguage(pool, text); });
}

TEST_CASE("rules, recursion, classes and repetitions match") {
  auto sums =
      Ebnf("root ::= term (\"+\" term)*  # a sum\nterm ::= [0-9]{1,3} | \"(\" root \")\"\n");
  REQUIRE_OK(sums);
  CHECK(sums->Matches("1+(22+333)+4"));
  CHECK_FALSE(sums->Matches("1+"));
  CHECK_FALSE(sums->Matches("1234"));
  CHECK(sums->Begins("((((12"));
  CHECK_FALSE(sums->Begins("1)"));
  auto names = Ebnf("root ::= [^a-z\\n]+ | '\\u00e9' .");
  REQUIRE_OK(names);
  CHECK(names->Matches("ABC"));
  CHECK(names->Matches("\xC3\xA9x"));
  CHECK_FALSE(names->Matches("Abc"));
}

TEST_CASE("an open end of the stack is a nesting of any depth") {
  auto nested = Ebnf("root ::= \"(\" root? \")\"");
  REQUIRE_OK(nested);
  CHECK(nested->Matches(std::string(5000, '(') + std::string(5000, ')')));
  CHECK_FALSE(nested->Matches(std::string(5000, '(') + std::string(4999, ')')));
}

TEST_CASE("a fault names its line or rule") {
  REQUIRE_FAILS(Ebnf("root ::= x\n"), absl::StatusCode::kInvalidArgument,
                "line 1: the rule \"x\" is not defined");
  REQUIRE_FAILS(Ebnf("a ::= \"x\"\n"), absl::StatusCode::kInvalidArgument, "no rule \"root\"");
  REQUIRE_FAILS(Ebnf("root ::= \"x\"\nroot ::= \"y\"\n"), absl::StatusCode::kInvalidArgument,
                "line 2");
  REQUIRE_FAILS(Ebnf("root ::= root \"x\" | \"x\"\n"), absl::StatusCode::kInvalidArgument,
                "the rule \"root\" is left-recursive");
  REQUIRE_FAILS(Ebnf("root ::= \"x\" root\n"), absl::StatusCode::kInvalidArgument,
                "no text matches");
  REQUIRE_FAILS(Ebnf("root ::= \"a\"{2,1}"), absl::StatusCode::kInvalidArgument,
                "line 1: the minimum of {2,1} is above its maximum");
  REQUIRE_FAILS(Ebnf("root ::= \"a\"{99999999999}"), absl::StatusCode::kUnimplemented,
                "more than 100000 repetitions");
  REQUIRE_FAILS(Ebnf("root ::= \"\\x1\x10\""), absl::StatusCode::kInvalidArgument,
                "hexadecimal digit");
}

TEST_CASE("a hostile grammar ends in an error or a match, not in the stack of the host") {
  std::string chain = "root ::= r0\n", groups = "root ::= ", repetitions = "root ::= \"a\"",
              optional = "root ::= ";
  for (int i = 0; i < 5000; ++i) {
    absl::StrAppend(&chain, "r", i, " ::= r", i + 1, "\n");
    groups += "(";
    repetitions += "{0,9}";
    optional += "\"a\"{0,9} ";
  }
  REQUIRE_FAILS(Ebnf(chain + "r5000 ::= \"a\""), absl::StatusCode::kUnimplemented,
                "nested too deeply");
  REQUIRE_FAILS(Ebnf(groups), absl::StatusCode::kInvalidArgument,
                "nested too deeply; at most 24 levels");
  REQUIRE_FAILS(Ebnf(repetitions), absl::StatusCode::kUnimplemented, "nested too deeply");
  auto long_one = Ebnf(optional);
  REQUIRE_OK(long_one);
  CHECK(long_one->pool.Shortened(long_one->root, 4) != kFail);
  // Each byte has a continuation in each place.
  CHECK(long_one->Matches("a"));
  CHECK((long_one->Matches("aaaaaaaaaaaaaaaaaaaa") || long_one->pool.exhausted()));
}

}  // namespace
}  // namespace dsv4::grammar
