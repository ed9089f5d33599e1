// SPDX-License-Identifier: Apache-2.0
// Merges of words by hand, over a vocabulary of the 256 bytes and a few letters joined.
#include "lib/text/bpe.h"

#include <string>
#include <vector>

#include "lib/text/byte_alphabet.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using Ids = std::vector<int32_t>;

// Byte b has id b; `tokens` have the ids from 256 on. `options` begins with a comma or is empty.
absl::StatusOr<Bpe> Make(const std::vector<std::string>& tokens, const std::string& merges,
                         const std::string& options = "") {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = AlphabetCharacter(static_cast<uint8_t>(byte));
    const bool needs_escape = character == "\"" || character == "\\";
    vocab += (byte ? ",\"" : "\"") + std::string(needs_escape ? "\\" : "") + character +
             "\":" + std::to_string(byte);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    vocab += ",\"" + tokens[i] + "\":" + std::to_string(256 + i);
  }
  // Vocabularies hold views into their documents.
  static std::vector<std::unique_ptr<JsonValue>> documents;
  auto model = ParseJson(
      R"({"type": "BPE", "vocab": {)" + vocab + "}, \"merges\": " + merges + options + "}", "doc",
      1 << 20);
  REQUIRE_OK(model);
  documents.push_back(std::make_unique<JsonValue>(*std::move(model)));
  auto vocabulary = Vocabulary::FromJson(*documents.back(), "doc");
  REQUIRE_OK(vocabulary);
  return Bpe::FromJson(*documents.back(), *vocabulary, "doc");
}

Ids Encode(const absl::StatusOr<Bpe>& bpe, absl::string_view word) {
  REQUIRE_OK(bpe);
  Bpe::Scratch scratch;
  Ids ids;
  bpe->Encode(word, scratch, ids);
  return ids;
}

TEST_CASE("the merge of lowest rank comes first, and of equal ones the leftmost") {
  const auto bpe = Make({"ab", "bc", "abc"}, R"(["b c", "a b", "a bc"])");
  CHECK(Encode(bpe, "abc") == Ids{258});
  CHECK(Encode(bpe, "ab") == Ids{256});
  CHECK(Encode(bpe, "abbc") == Ids{256, 257});
  CHECK(Encode(bpe, "") == Ids{});
  CHECK(Encode(bpe,
               "\xff"
               "a") == Ids{255, 'a'});
  const auto pairs = Make({"aa"}, R"([["a", "a"]])");
  CHECK(Encode(pairs, "aaa") == Ids{256, 'a'});
  CHECK(Encode(pairs, "aaaaa") == Ids{256, 256, 'a'});
}

TEST_CASE("a merge that is listed again has its last rank") {
  CHECK(Encode(Make({"ab", "bc"}, R"(["a b", "b c"])"), "abc") == Ids{256, 'c'});
  CHECK(Encode(Make({"ab", "bc"}, R"(["a b", "b c", "a b"])"), "abc") == Ids{'a', 257});
}

TEST_CASE("of many merges of one left token each is found, and none between them") {
  for (int count = 1; count <= 9; ++count) {
    std::vector<std::string> tokens;
    std::string merges;
    for (int i = count - 1; i >= 0; --i) {  // b, d, f, ...
      const std::string right(1, static_cast<char>('b' + 2 * i));
      tokens.push_back("m" + right);
      merges += (merges.empty() ? "[\"m " : ", \"m ") + right + "\"";
    }
    const auto bpe = Make(tokens, merges + "]");
    CAPTURE(count);
    for (char c = 'a'; c <= 'z'; ++c) {
      const int place = (c - 'b') / 2;
      const bool merged = c >= 'b' && (c - 'b') % 2 == 0 && place < count;
      CHECK(Encode(bpe, std::string("m") + c) ==
            (merged ? Ids{256 + count - 1 - place} : Ids{'m', c}));
    }
  }
}

TEST_CASE("a merge that another has overtaken is dropped") {
  // Both "ab" and "bc" are candidates at first; "bc" takes the b.
  const auto bpe = Make({"ab", "bc", "bcd", "xab"}, R"(["b c", "bc d", "a b", "x ab"])");
  CHECK(Encode(bpe, "xabcd") == Ids{'x', 'a', 258});
  CHECK(Encode(bpe, "xab") == Ids{259});
  // Doubling up: eight letters in three rounds.
  const auto doubling = Make({"aa", "aaaa", "aaaaaaaa"}, R"(["a a", "aa aa", "aaaa aaaa"])");
  CHECK(Encode(doubling, "aaaaaaaa") == Ids{258});
  CHECK(Encode(doubling, "aaaaaaa") == Ids{257, 256, 'a'});
}

TEST_CASE("ignore_merges takes a whole word that is a token") {
  const std::string merges = R"(["a b"])";
  CHECK(Encode(Make({"ab", "cab"}, merges), "cab") == Ids{'c', 256});
  CHECK(Encode(Make({"ab", "cab"}, merges, R"(, "ignore_merges": true)"), "cab") == Ids{257});
  CHECK(Encode(Make({"ab", "cab"}, merges, R"(, "ignore_merges": true)"), "cabc") ==
        Ids{'c', 256, 'c'});
  CHECK(Encode(Make({"ab", "cab"}, merges, R"(, "ignore_merges": false)"), "cab") == Ids{'c', 256});
}

TEST_CASE("merges of unknown tokens are Corrupt") {
  const auto fails = [](const std::string& merges, const std::string& text) {
    INFO(merges);
    REQUIRE_FAILS(Make({"ab"}, merges), absl::StatusCode::kDataLoss, text);
  };
  fails(R"(["a b", "a zz"])", "merge 1, \"a\" + \"zz\": token \"zz\" is not in the vocabulary");
  fails(R"(["zz a"])", "token \"zz\"");
  fails(R"(["b a"])", "token \"ba\" is not in the vocabulary");
  fails(R"(["ab"])", "merge 0 is \"ab\", not two tokens");
  fails(R"(["a b c"])", "not two tokens");
  fails(R"([["a"]])", "merge 0 is neither");
  fails(R"([["a", 1]])", "merge 0 is neither");
  fails(R"([7])", "merge 0 is neither");
  fails(R"({})", "\"merges\" is object, not array");
}

}  // namespace
}  // namespace dsv4
