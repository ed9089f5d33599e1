// SPDX-License-Identifier: Apache-2.0
// Expected pieces follow from the rule by hand: tokens that are not normalised first, then the
// others; leftmost, and at one place the longest.
#include "lib/text/added_tokens.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using Pieces = std::vector<std::string>;

AddedTokens Tokens(absl::string_view array) {
  auto root = ParseJson(absl::StrCat("{\"added_tokens\": ", array, "}"), "doc", 1 << 20);
  REQUIRE_OK(root);
  auto tokens = AddedTokens::FromJson(*root, "doc");
  REQUIRE_OK(tokens);
  return *std::move(tokens);
}

// Texts as they are, ids as "#7".
Pieces Split(const AddedTokens& tokens, absl::string_view text) {
  Pieces pieces;
  REQUIRE_OK(tokens.Split(
      text,
      [&](absl::string_view piece) {
        pieces.emplace_back(piece);
        return absl::OkStatus();
      },
      [&](int32_t id) { pieces.push_back(absl::StrCat("#", id)); }));
  return pieces;
}

TEST_CASE("added tokens are cut out of the text") {
  const AddedTokens tokens = Tokens(R"([{"id": 1, "content": "<a>"}, {"id": 2, "content": "<a><b>"},
                                        {"id": 3, "content": "b>c"}])");
  CHECK(Split(tokens, "").empty());
  CHECK(Split(tokens, "plain") == Pieces{"plain"});
  CHECK(Split(tokens, "<a>") == Pieces{"#1"});
  CHECK(Split(tokens, "x<a>y") == Pieces{"x", "#1", "y"});
  CHECK(Split(tokens, "<a><a>") == Pieces{"#1", "#1"});
  CHECK(Split(tokens, "<a><b>c") == Pieces{"#2", "c"});  // longest, although "b>c" fits later
  CHECK(Split(tokens, "<a><bb>c") == Pieces{"#1", "<b", "#3"});  // back to the shorter one
  CHECK(Split(tokens, "<a") == Pieces{"<a"});
  CHECK(Split(tokens, "<<a>>") == Pieces{"<", "#1", ">"});
}

TEST_CASE("tokens that are not normalised are cut out first") {
  const AddedTokens tokens = Tokens(R"([{"id": 1, "content": "ab", "normalized": true},
                                        {"id": 2, "content": "bc", "normalized": false}])");
  CHECK(Split(tokens, "abc") == Pieces{"a", "#2"});
  CHECK(Split(tokens, "abab") == Pieces{"#1", "#1"});
  // Absent, "normalized" is the opposite of "special", as in the HF library.
  const AddedTokens defaults = Tokens(R"([{"id": 1, "content": "ab", "special": false},
                                          {"id": 2, "content": "bc", "special": true}])");
  CHECK(Split(defaults, "abc") == Pieces{"a", "#2"});
}

TEST_CASE("special tokens are those marked so") {
  const AddedTokens tokens = Tokens(R"([{"id": 1, "content": "a", "special": true},
                                        {"id": 2, "content": "b", "special": false}])");
  CHECK(tokens.IsSpecial(1));
  CHECK(!tokens.IsSpecial(2));
  CHECK(!tokens.IsSpecial(3));
}

}  // namespace
}  // namespace dsv4
