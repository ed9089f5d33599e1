// SPDX-License-Identifier: Apache-2.0
// Steps of scripted machines: milliseconds as functions of the prompt tokens, worked out by hand.
#include "lib/step/prompt_pace.h"

#include <functional>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using Machine = std::function<double(int64_t prompt_tokens)>;  // milliseconds of a step

// Shares `count` steps, 20 or more, with sessions that decode. Returns the longest of the last 20.
double Share(PromptPace* pace, int count, const Machine& machine) {
  double longest = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t tokens = pace->tokens();
    const double milliseconds = machine(tokens);
    if (i >= count - 20) longest = std::max(longest, milliseconds);
    pace->AddStep(tokens, true, milliseconds / 1e3);
  }
  return longest;
}

TEST_CASE("steps of a prompt take 50 to 100 ms") {
  // 10 ms and 1 ms a token: 40 to 90 tokens.
  const Machine machine = [](int64_t tokens) { return 10 + 1.0 * static_cast<double>(tokens); };
  PromptPace pace(2048);
  CHECK(pace.tokens() == 64);
  CHECK(Share(&pace, 40, machine) <= 100);
  CHECK(pace.tokens() >= 40);
  CHECK(pace.tokens() <= 90);
  // A tenth of the time: 490 to 990 tokens, but for rounding to a multiple of 16.
  const Machine fast = [&](int64_t tokens) { return machine(tokens) / 10; };
  CHECK(Share(&pace, 30, fast) <= 100);
  CHECK(pace.tokens() >= 480);
  CHECK(pace.tokens() <= 990);
}

TEST_CASE("a full step that fits is not made smaller") {
  PromptPace pace(256);
  CHECK(Share(&pace, 25, [](int64_t tokens) { return 0.2 * static_cast<double>(tokens); }) < 52);
  CHECK(pace.tokens() == 256);
}

TEST_CASE("the measured steps of prompts alone say how large the first shared one may be") {
  PromptPace pace(2048);
  pace.AddStep(2048, false, 0.02);
  CHECK(pace.tokens() == 2048);
  // 65 ms are 6.5 % of a second.
  for (int i = 0; i < 3; ++i) pace.AddStep(2048, false, 1);
  CHECK(pace.tokens() == 512);  // at most a quarter at once
  pace.AddStep(512, true, 0.25);
  CHECK(pace.tokens() == 128);  // 512 * 65 / 250 = 133
}

TEST_CASE("one slow step does not shrink the others to nothing") {
  PromptPace pace(256);
  for (int i = 0; i < 10; ++i) pace.AddStep(pace.tokens(), true, 0.02);
  REQUIRE(pace.tokens() == 256);
  pace.AddStep(256, true, 5);
  CHECK(pace.tokens() == 64);
  pace.AddStep(64, true, 0.005);
  pace.AddStep(128, true, 0.01);
  CHECK(pace.tokens() == 256);
}

TEST_CASE("a machine that cannot keep the time gets the fewest tokens") {
  // A token of the others alone takes 200 ms, and a prompt's token 40.
  PromptPace pace(256);
  pace.AddStep(256, false, 10.24);
  CHECK(Share(&pace, 40, [](int64_t tokens) { return 200 + 40.0 * static_cast<double>(tokens); }) ==
        840);
  CHECK(pace.tokens() == 16);
  // The last token of a prompt changes nothing.
  pace.AddStep(1, true, 0.24);
  CHECK(pace.tokens() == 16);
}

TEST_CASE("prompts keep an eighth of their speed where small steps cost as much as large ones") {
  // Experts on disk: 9 s for 16 tokens, 28 s for 256 and more; alone 2048 tokens in 30 s.
  const auto disk = [](int64_t tokens) {
    return tokens >= 256 ? 28e3 : 9e3 + 19e3 * static_cast<double>(tokens - 16) / 240;
  };
  PromptPace pace(2048);
  pace.AddStep(2048, false, 30);
  Share(&pace, 20, disk);
  // 256 tokens in 28 s are 9.1 tokens per second, an eighth of 68.3 is 8.5; 128 are 7.2.
  CHECK(pace.tokens() == 256);
  // Once small steps are fast again, the 100 ms count again.
  Share(&pace, 100, [](int64_t tokens) { return static_cast<double>(tokens); });
  CHECK(pace.tokens() <= 96);
}

TEST_CASE("small engines have smaller steps") {
  PromptPace pace(5);
  CHECK(pace.tokens() == 5);
  for (int i = 0; i < 5; ++i) pace.AddStep(5, true, 3);
  CHECK(pace.tokens() == 5);
  pace.AddStep(0, true, 3);
  pace.AddStep(5, true, 0);
  CHECK(pace.tokens() == 5);
}

}  // namespace
}  // namespace dsv4
