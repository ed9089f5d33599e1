// SPDX-License-Identifier: Apache-2.0
// Ids and texts against the HF tokenizers library: the bundled model's tokenizer by the cases that
// tools/tinymodel/tokenizer_cases.py recorded, the family's by the oracle's where it is available.
#include "lib/text/tokenizer.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using Ids = std::vector<int32_t>;

void CheckCases(const Tokenizer& tokenizer, const std::vector<test::TokenizerCase>& cases) {
  for (const auto& c : cases) {
    INFO("text: " << c.text);
    auto ids = tokenizer.Encode(c.text, {.added_tokens = true});
    REQUIRE_OK(ids);
    REQUIRE(*ids == c.ids);
    auto decoded = tokenizer.Decode(*ids);
    REQUIRE_OK(decoded);
    REQUIRE(*decoded == c.decoded);
  }
}

TEST_CASE("the bundled tokenizer encodes and decodes as the HF library") {
  const auto cases = test::TokenizerCases("dsv4_tiny_tokenizer_cases.json");
  REQUIRE(cases.size() >= 1000);
  CheckCases(test::TinyTokenizer(), cases);
}

TEST_CASE("the family's tokenizer encodes and decodes as the HF library") {
  if (!std::ifstream(DSV4_FAMILY_TOKENIZER)) {
    WARN("skipped: no tokenizer at " DSV4_FAMILY_TOKENIZER);
    return;
  }
  auto tokenizer = Tokenizer::Load(DSV4_FAMILY_TOKENIZER);
  REQUIRE_OK(tokenizer);
  CheckCases(**tokenizer, test::TokenizerCases("tokenizer_v3_cases.json"));
}

TEST_CASE("with added tokens off none comes out and the text stays") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  std::vector<bool> is_added(tokenizer.vocab_size());
  const JsonValue document = test::Document("models/dsv4-tiny/tokenizer.json");
  for (const JsonValue& token : *document.Find("added_tokens")->AsArray()) {
    is_added[*token.Find("id")->AsInt64()] = true;
  }
  int with_added = 0;
  for (const auto& c : test::TokenizerCases("dsv4_tiny_tokenizer_cases.json")) {
    bool spells_one = false;
    for (const int32_t id : c.ids) spells_one = spells_one || is_added[id];
    const Ids ids = *tokenizer.Encode(c.text);
    for (const int32_t id : ids) REQUIRE(!is_added[id]);
    REQUIRE(*tokenizer.Decode(ids) == c.text);
    REQUIRE((ids == c.ids) == !spells_one);
    with_added += spells_one;
  }
  CHECK(with_added > 100);
}

TEST_CASE("EncodeTo appends, and on error leaves what was there") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  Ids ids = {7};
  REQUIRE_OK(tokenizer.EncodeTo("<think>", {.added_tokens = true}, &ids));
  CHECK(ids == Ids{7, 2037});
  REQUIRE_FAILS(tokenizer.EncodeTo("the \xff", {}, &ids), absl::StatusCode::kInvalidArgument,
                "byte 4");
  CHECK(ids == Ids{7, 2037});
}

TEST_CASE("text that is not UTF-8 is refused with the place") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  for (const bool added_tokens : {false, true}) {
    REQUIRE_FAILS(tokenizer.Encode("abc\x80", {.added_tokens = added_tokens}),
                  absl::StatusCode::kInvalidArgument, "not UTF-8 at byte 3");
    REQUIRE_FAILS(tokenizer.Encode("é\xE4\xBD", {.added_tokens = added_tokens}),
                  absl::StatusCode::kInvalidArgument, "not UTF-8 at byte 2");
  }
}

TEST_CASE("ids and tokens look each other up") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  CHECK(tokenizer.vocab_size() == 2048);
  CHECK(tokenizer.max_id() == 2047);
  CHECK(tokenizer.FindAddedToken("<｜begin▁of▁sentence｜>") == 0);
  CHECK(tokenizer.FindAddedToken("</think>") == 2038);
  CHECK(!tokenizer.FindAddedToken("the"));
  CHECK(!tokenizer.FindAddedToken(""));
  CHECK(*tokenizer.TokenBytes(2038) == "</think>");
  CHECK(*tokenizer.TokenBytes(1) == "<｜end▁of▁sentence｜>");
  CHECK(*tokenizer.TokenBytes(3) == "!");
  CHECK(tokenizer.IsSpecial(1));
  CHECK(!tokenizer.IsSpecial(2038));
  CHECK(!tokenizer.IsSpecial(-1));
  CHECK(tokenizer.HasToken(0));
  CHECK(tokenizer.HasToken(2047));
  CHECK(!tokenizer.HasToken(2048));
  CHECK(!tokenizer.HasToken(-1));
}

TEST_CASE("ids without a token are errors that name them") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  REQUIRE_FAILS(tokenizer.TokenBytes(2048), absl::StatusCode::kInvalidArgument, "2048");
  REQUIRE_FAILS(tokenizer.TokenBytes(-5), absl::StatusCode::kInvalidArgument, "-5");
  REQUIRE_FAILS(tokenizer.Decode(Ids{3, 2048}), absl::StatusCode::kInvalidArgument, "2048");
  REQUIRE_FAILS(tokenizer.Decode(Ids{INT32_MAX}), absl::StatusCode::kInvalidArgument, "2147483647");
}

TEST_CASE("special tokens are left out of a text on request") {
  const Tokenizer& tokenizer = test::TinyTokenizer();
  const Ids ids = *tokenizer.Encode("<｜begin▁of▁sentence｜>hi<think>", {.added_tokens = true});
  CHECK(*tokenizer.Decode(ids) == "<｜begin▁of▁sentence｜>hi<think>");
  CHECK(*tokenizer.Decode(ids, {.skip_special_tokens = true}) == "hi<think>");
}

std::string Repeated(absl::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text.append(unit.data(), unit.size());
  return text;
}

// The processor time of the fastest of `runs` round trips, in seconds.
double RoundTripSeconds(const std::string& text, int runs) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    for (const bool added_tokens : {false, true}) {
      auto ids = test::TinyTokenizer().Encode(text, {.added_tokens = added_tokens});
      REQUIRE_OK(ids);
      REQUIRE((*test::TinyTokenizer().Decode(*ids) == text));
    }
    fastest = std::min(fastest, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return fastest;
}

// Sixteen times the text takes sixteen times as long, or a little more. Where the time grew with
// the square, it would be 256 times.
void RequireLinear(const std::function<std::string(size_t bytes)>& text) {
  constexpr size_t kBytes = 1'000'000;
  const double part = RoundTripSeconds(text(kBytes / 16), 3);
  const double whole = RoundTripSeconds(text(kBytes), 1);
  CHECK(whole < 64 * part);
}

TEST_CASE("a megabyte of anything is tokenised in time that grows with its length") {
  for (const char* unit :
       {"a", " ", "\n", "7", "!", "<", "你", "😀", "\u0301", " \n", " a", "\r\n", "\u00a0", "\u0378",
        "<｜", "<｜begin▁of▁sentence", "<｜User｜>", "the quick brown fox "}) {
    INFO("repeated: " << unit);
    RequireLinear([&](size_t bytes) { return Repeated(unit, bytes); });
  }
  RequireLinear([](size_t bytes) {
    std::mt19937 random(20260101);
    std::string text;
    while (text.size() < bytes) {
      const uint32_t c = random() % 0x110000;
      if (c < 0x10000) continue;
      for (const int shift : {18, 12, 6, 0}) {
        text.push_back(
            static_cast<char>(shift == 18 ? 0xF0 | c >> 18 : 0x80 | (c >> shift & 0x3F)));
      }
    }
    return text;
  });
  RequireLinear([](size_t bytes) { return Repeated(" ", bytes) + "x"; });
  RequireLinear([](size_t bytes) { return absl::StrCat("x", Repeated("\u2003 \t", bytes), "x"); });
}

TEST_CASE("threads share one tokenizer") {
  const auto cases = test::TokenizerCases("dsv4_tiny_tokenizer_cases.json");
  const Tokenizer& tokenizer = test::TinyTokenizer();
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const auto& c : cases) {
        const auto ids = tokenizer.Encode(c.text, {.added_tokens = true});
        wrong[t] += !ids.ok() || *ids != c.ids;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

}  // namespace
}  // namespace dsv4
