// SPDX-License-Identifier: Apache-2.0
#include "lib/step/prompt_pace.h"

#include <algorithm>

namespace dsv4 {
namespace {

constexpr double kTargetSeconds = std::chrono::duration<double>(PromptPace::kTarget).count();
// Steps between kNear of the target and the target are left as they are. On a busy machine one step
// takes twice as long as the next.
constexpr double kNear = 0.5, kAim = 0.65;
// One slow step, of a busy machine, is not to shrink the next ones to nothing.
constexpr int64_t kMostShrink = 4, kMostGrowth = 2;
constexpr double kForget = 0.98;

}  // namespace

PromptPace::PromptPace(int64_t most)
    : most_(std::max<int64_t>(most, 1)),
      tokens_(std::min(kFirst, most_)),
      fewest_(std::min(kFewest, most_)) {}

int64_t PromptPace::tokens() const {
  const int64_t whole = tokens_ / kFewest * kFewest;
  return whole > 0 ? whole : tokens_;
}

void PromptPace::AddStep(int64_t tokens, bool shared, double seconds) {
  if (tokens <= 0 || seconds <= 0) return;
  const auto count = static_cast<double>(tokens);
  const double speed = count / seconds;
  const bool fewest = shared && tokens >= this->tokens() && tokens <= fewest_;
  if (tokens >= kFewest) best_speed_ = std::max(best_speed_ * kForget, speed);
  if (seconds < kNear * kTargetSeconds) {
    const double growth =
        std::min(kAim * kTargetSeconds / seconds, static_cast<double>(kMostGrowth));
    tokens_ = std::max(tokens_, static_cast<int64_t>(count * growth));
  } else if (seconds > kTargetSeconds) {
    const auto fits = static_cast<int64_t>(count * kAim * kTargetSeconds / seconds);
    tokens_ = std::min(tokens_, std::max(fits, tokens / kMostShrink));
    if (fewest && speed < kLeastSpeed * best_speed_) fewest_ = 2 * tokens;
  }
  if (tokens <= fewest_ && speed > 2 * kLeastSpeed * best_speed_) fewest_ /= 2;
  fewest_ = std::clamp(fewest_, std::min(kFewest, most_), most_);
  tokens_ = std::clamp(tokens_, fewest_, most_);
}

}  // namespace dsv4
