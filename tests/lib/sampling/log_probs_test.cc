// SPDX-License-Identifier: Apache-2.0
// Logits are logarithms of small numbers, so that the probabilities are plain fractions.
#include "lib/sampling/log_probs.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_CASE("log-probabilities by hand") {
  // 1 : 2 : 5 of 8.
  for (const float shift : {0.0f, 40.0f, -40.0f}) {
    CAPTURE(shift);
    const std::vector<float> logits = {shift, shift + 0.6931472f, shift + 1.6094379f};
    const double mass = LogMass(logits);
    REQUIRE(mass == Approx(shift + 2.0794415));
    REQUIRE(LogProb(logits, mass, 0) == Approx(-2.0794415));
    REQUIRE(LogProb(logits, mass, 1) == Approx(-1.3862944));
    REQUIRE(LogProb(logits, mass, 2) == Approx(-0.4700036));
  }
}

TEST_CASE("huge logits do not overflow") {
  const std::vector<float> logits = {3e38f, 3e38f, -3e38f};
  const double mass = LogMass(logits);
  REQUIRE(LogProb(std::vector<float>{1000, 1000}, LogMass(std::vector<float>{1000, 1000}), 1) ==
          Approx(-0.6931472));
  REQUIRE(std::isfinite(mass));
  REQUIRE(LogProb(logits, mass, 2) == -kInf);
}

TEST_CASE("logits that are not finite have probability 0") {
  const std::vector<float> logits = {kNan, 0, kInf, 0, -kInf};
  const double mass = LogMass(logits);
  REQUIRE(LogProb(logits, mass, 1) == Approx(-0.6931472));
  for (const int32_t token : {0, 2, 4}) REQUIRE(LogProb(logits, mass, token) == -kInf);
  REQUIRE(LogMass(std::vector<float>{kNan, kInf}) == -kInf);
}

TEST_CASE("the most likely tokens, ties by the lowest id") {
  const std::vector<float> logits = {0, 1, kNan, 3, 1, 2, 3, -kInf, 1, kInf};
  const double mass = LogMass(logits);
  const auto top = [&](size_t count) {
    std::vector<TokenLogProb> out(count);
    const size_t found = TopLogProbs(logits, mass, absl::MakeSpan(out));
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < found; ++i) {
      tokens.push_back(out[i].token);
      REQUIRE(out[i].log_prob == LogProb(logits, mass, out[i].token));
    }
    return tokens;
  };
  using Tokens = std::vector<int32_t>;
  REQUIRE(top(0) == Tokens{});
  REQUIRE(top(1) == Tokens{3});
  REQUIRE(top(2) == Tokens{3, 6});
  REQUIRE(top(4) == Tokens{3, 6, 5, 1});
  REQUIRE(top(6) == Tokens{3, 6, 5, 1, 4, 8});
  REQUIRE(top(20) == Tokens{3, 6, 5, 1, 4, 8, 0});
}

}  // namespace
}  // namespace dsv4
