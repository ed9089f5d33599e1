// SPDX-License-Identifier: Apache-2.0
// Chooses how many prompt tokens a step computes while other sessions decode, so that these get a
// token at least every kTarget. Measures how long steps take. Changes when tokens come, never
// which.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsv4 {

class PromptPace {
 public:
  // How long a step that sessions share with prompts may take. Steps that take longer with the
  // fewest prompt tokens, too, are not avoided.
  static constexpr std::chrono::milliseconds kTarget{100};
  // The fewest prompt tokens of a step, and its unit.
  static constexpr int64_t kFewest = 16;
  // Before a step was measured.
  static constexpr int64_t kFirst = 64;
  // Where smaller steps would not keep this share of a prompt's speed alone, as with experts on
  // disk, steps are larger and take longer than kTarget.
  static constexpr double kLeastSpeed = 0.125;

  // `most`: the tokens of a step if no session decodes.
  explicit PromptPace(int64_t most);

  // The most prompt tokens of the next step that decoding sessions share: kFewest to `most`.
  int64_t tokens() const;
  // Reports a step of so many prompt tokens; `shared`: with sessions that decode.
  void AddStep(int64_t tokens, bool shared, double seconds);

 private:
  const int64_t most_;
  int64_t tokens_, fewest_;
  double best_speed_ = 0;  // tokens per second; older ones count less
};

}  // namespace dsv4
