// SPDX-License-Identifier: Apache-2.0
// Which code points a class holds is what the HF tokenizers library said (unicode_classes.json,
// made by tools/tinymodel/tokenizer_cases.py); other expected pieces follow from the patterns by
// hand.
#include "lib/text/split_pattern.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/status_macros.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using Pieces = std::vector<std::string>;

absl::StatusOr<Pieces> Split(const SplitPattern& pattern, absl::string_view text) {
  MatchState state;
  Pieces pieces;
  DSV4_RETURN_IF_ERROR(pattern.ForEachPiece(text, state, [&](absl::string_view piece) {
    pieces.emplace_back(piece);
    return absl::OkStatus();
  }));
  return pieces;
}

Pieces SplitBy(absl::string_view regex, absl::string_view text,
               SplitPattern::Engine engine = SplitPattern::Engine::kJit) {
  auto pattern = SplitPattern::FromRegex(regex, engine);
  INFO(regex);
  REQUIRE_OK(pattern);
  auto pieces = Split(*pattern, text);
  REQUIRE_OK(pieces);
  return *std::move(pieces);
}

std::string Utf8Of(int64_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

TEST_CASE("classes hold the code points that the HF library puts in them") {
  const JsonValue classes = test::Document("tests/lib/text/unicode_classes.json");
  REQUIRE(classes.AsObject()->size() == 8);
  for (const JsonMember& entry : *classes.AsObject()) {
    // All code points in a row: each one in the class is a piece, and so is each run of others.
    std::string text;
    std::vector<size_t> expected_ends;
    bool before_was_in = true;
    const std::vector<JsonValue>& ranges = *entry.value.AsArray();
    size_t next = 0;
    for (int64_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      while (next < ranges.size() && c > *(*ranges[next].AsArray())[1].AsInt64()) ++next;
      const bool is_in = next < ranges.size() && c >= *(*ranges[next].AsArray())[0].AsInt64();
      if (!text.empty() && (is_in || before_was_in)) expected_ends.push_back(text.size());
      text += Utf8Of(c);
      before_was_in = is_in;
    }
    expected_ends.push_back(text.size());
    for (const std::string& regex : {entry.key, "[" + entry.key + "]"}) {
      if (regex == "[\\P{L}]") continue;  // refused
      INFO(regex);
      auto pattern = SplitPattern::FromRegex(regex);
      REQUIRE_OK(pattern);
      MatchState state;
      std::vector<size_t> ends;
      REQUIRE_OK(pattern->ForEachPiece(text, state, [&](absl::string_view piece) {
        ends.push_back(piece.data() + piece.size() - text.data());
        return absl::OkStatus();
      }));
      const auto difference =
          std::mismatch(ends.begin(), ends.end(), expected_ends.begin(), expected_ends.end());
      INFO("first difference at byte "
           << (difference.first == ends.end() ? text.size() : *difference.first));
      CHECK((ends == expected_ends));
    }
  }
}

TEST_CASE("matches and what lies between them are pieces") {
  CHECK(SplitBy("b+", "abbcb") == Pieces{"a", "bb", "c", "b"});
  CHECK(SplitBy("b", "abbc") == Pieces{"a", "b", "b", "c"});
  CHECK(SplitBy("x", "abc") == Pieces{"abc"});
  CHECK(SplitBy("x", "").empty());
  CHECK(SplitBy("a|ab", "ab") == Pieces{"a", "b"});  // the first alternative wins, not the longest
  CHECK(SplitBy("(?:ab)+", "xababy") == Pieces{"x", "abab", "y"});
  CHECK(SplitBy("a{2}", "aaaaa") == Pieces{"aa", "aa", "a"});
  CHECK(SplitBy("a{2,}b?", "aaab") == Pieces{"aaab"});
  CHECK(SplitBy("\\s+(?!\\S)|\\s+", "a   b") == Pieces{"a", "  ", " ", "b"});
  CHECK(SplitBy("\\s+(?!\\S)|\\s+", "a   ") == Pieces{"a", "   "});
  CHECK(SplitBy("a(?=b)", "abac") == Pieces{"a", "bac"});
  CHECK(SplitBy("[^\\p{L}\\s]", "a1 2") == Pieces{"a", "1", " ", "2"});
  CHECK(SplitBy("[\\[\\]\\-a]", "[-a]b") == Pieces{"[", "-", "a", "]", "b"});
  CHECK(SplitBy("[一-龥]+", "x你好y") == Pieces{"x", "你好", "y"});
}

TEST_CASE("empty matches make no pieces and no endless walk") {
  CHECK(SplitBy("x*", "aé你") == Pieces{"a", "é", "你"});
  CHECK(SplitBy("b*", "abbc") == Pieces{"a", "bb", "c"});
  CHECK(SplitBy("(?=b)", "abc") == Pieces{"a", "bc"});
  CHECK(SplitBy("(?=b)|b", "abbc") == Pieces{"a", "b", "bc"});
}

TEST_CASE("a literal splits at itself alone") {
  auto pattern = SplitPattern::FromLiteral("a.b");
  REQUIRE_OK(pattern);
  CHECK(*Split(*pattern, "xa.bayb") == Pieces{"x", "a.b", "ayb"});
  REQUIRE_FAILS(SplitPattern::FromLiteral(""), absl::StatusCode::kDataLoss, "empty");
}

TEST_CASE("the interpreter gives the pieces of machine code") {
  const JsonValue tokenizer = test::Document("models/dsv4-tiny/tokenizer.json");
  const auto cases = test::TokenizerCases("dsv4_tiny_tokenizer_cases.json");
  int regexes = 0;
  for (const JsonValue& step : *tokenizer.Find("pre_tokenizer")->Find("pretokenizers")->AsArray()) {
    if (!step.Find("pattern")) continue;
    const std::string& regex = *step.Find("pattern")->Find("Regex")->AsString();
    auto jit = SplitPattern::FromRegex(regex, SplitPattern::Engine::kJit);
    auto interpreter = SplitPattern::FromRegex(regex, SplitPattern::Engine::kInterpreter);
    REQUIRE_OK(jit);
    REQUIRE_OK(interpreter);
    for (const auto& c : cases) REQUIRE(*Split(*jit, c.text) == *Split(*interpreter, c.text));
    for (const char* unit : {"a", " ", "\n", "!", "你"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      auto pieces = Split(*interpreter, text);
      REQUIRE_OK(pieces);
      REQUIRE((*pieces == *Split(*jit, text)));
    }
    ++regexes;
  }
  CHECK(regexes == 3);
}

TEST_CASE("constructs that Oniguruma may read otherwise are refused by name") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\\d", "\\\\d"},
      {"\\w+", "\\\\w"},
      {"a\\b", "\\\\b"},
      {"\\h", "\\\\h"},
      {"\\x41", "\\\\x"},
      {"(?i:a)", "(?i:"},
      {"(?<=a)b", "(?<="},
      {"(?<n>a)", "(?<n"},
      {"^a", "^"},
      {"a$", "$"},
      {"a.b", "."},
      {"[a[b]]", "[b"},
      {"[a&&b]", "&&"},
      {"[]a]", "]"},
      {"[^]a]", "]"},
      {"a{,3}", "{,"},
      {"a{2}?", "{2}?"},
      {"a{2,3}+", "{2,3}+"},
      {"a{x", "{x"},
      {"\\p{Han}", "\\\\p{Han}"},
      {"\\p{Lu}", "\\\\p{Lu}"},
      {"\\p{^L}", "\\\\p{^L}"},
      {"[\\P{L}]", "\\\\P{L}"},
      {"(*UTF)a", "(*UT"},
      {"a\\", "\\\\"},
      {"\\p", "\\\\p"},
  };
  for (const auto& [regex, named] : cases) {
    INFO(regex);
    REQUIRE_FAILS(SplitPattern::FromRegex(regex), absl::StatusCode::kUnimplemented, named);
    REQUIRE_FAILS(SplitPattern::FromRegex(regex), absl::StatusCode::kUnimplemented, "at byte");
  }
}

TEST_CASE("malformed regexes are Corrupt") {
  for (const char* regex : {"(a", "a)", "[a", "*a", "a{3,2}", "[z-a]"}) {
    REQUIRE_FAILS(SplitPattern::FromRegex(regex), absl::StatusCode::kDataLoss, regex);
  }
}

TEST_CASE("a pattern that backtracks without end is stopped") {
  for (const auto engine : {SplitPattern::Engine::kJit, SplitPattern::Engine::kInterpreter}) {
    auto pattern = SplitPattern::FromRegex("(?:a|aa)+[bc]", engine);
    REQUIRE_OK(pattern);
    REQUIRE_FAILS(Split(*pattern, std::string(100, 'a')), absl::StatusCode::kUnimplemented,
                  "(?:a|aa)+[bc]");
  }
}

TEST_CASE("deep backtracking gives the same pieces without machine code's stack") {
  const std::string text = std::string(300'000, 'a') + "b";
  CHECK(SplitBy("(?:a|b)+", text) == Pieces{text});
  CHECK(SplitBy("(?:a|b)+", text, SplitPattern::Engine::kInterpreter) == Pieces{text});
}

}  // namespace
}  // namespace dsv4
