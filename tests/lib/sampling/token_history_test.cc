// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/token_history.h"

#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using Tokens = std::vector<int32_t>;

Tokens Seen(const TokenHistory& history) {
  return Tokens(history.tokens().begin(), history.tokens().end());
}

TEST_CASE("a history holds the distinct tokens of prompt and output, and counts the output") {
  TokenHistory history(10);
  REQUIRE(Seen(history).empty());
  history.Reset({4, 2, 4});
  REQUIRE(Seen(history) == Tokens{4, 2});
  REQUIRE(history.outputs(4) == 0);
  for (const int32_t token : {2, 9, 9, 0}) history.Push(token);
  REQUIRE(Seen(history) == Tokens{4, 2, 9, 0});
  REQUIRE(history.outputs(2) == 1);
  REQUIRE(history.outputs(9) == 2);
  REQUIRE(history.outputs(0) == 1);
  REQUIRE(history.outputs(4) == 0);
  REQUIRE(history.outputs(1) == 0);
}

TEST_CASE("a token taken back leaves no trace") {
  TokenHistory history(10);
  history.Reset({4, 2});
  history.Push(7);
  for (const int32_t token : {7, 4, 9, 9}) history.Push(token);
  REQUIRE(Seen(history) == Tokens{4, 2, 7, 9});
  history.Pop(9);
  REQUIRE(history.outputs(9) == 1);
  REQUIRE(Seen(history) == Tokens{4, 2, 7, 9});
  history.Pop(9);
  REQUIRE(history.outputs(9) == 0);
  REQUIRE(Seen(history) == Tokens{4, 2, 7});
  history.Pop(4);
  REQUIRE(history.outputs(4) == 0);
  REQUIRE(Seen(history) == Tokens{4, 2, 7});
  history.Pop(7);
  REQUIRE(history.outputs(7) == 1);
  REQUIRE(Seen(history) == Tokens{4, 2, 7});
}

TEST_CASE("a new prompt forgets prompt and output") {
  TokenHistory history(10);
  history.Reset({4, 2});
  history.Push(7);
  history.Push(4);
  history.Reset({5});
  REQUIRE(Seen(history) == Tokens{5});
  REQUIRE(history.outputs(7) == 0);
  REQUIRE(history.outputs(4) == 0);
  history.Push(4);
  REQUIRE(Seen(history) == Tokens{5, 4});
}

}  // namespace
}  // namespace dsv4
