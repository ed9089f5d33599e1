// SPDX-License-Identifier: Apache-2.0
#include "lib/step/draft_pace.h"

#include <algorithm>

namespace dsv4 {
namespace {

constexpr double kKept = 1 - 1.0 / 64;  // of the weight of a step, with each later one
// A step that takes longer than so many times the expected time waited for something else.
constexpr double kOutlier = 1.5;

}  // namespace

DraftPace::Line DraftPace::StepLine() const {
  if (steps_ < kFewestSteps) return {};
  const double variance = weight_ * rows_squared_ - rows_ * rows_;
  // All of one size, up to rounding.
  if (variance < 1e-6 * weight_ * rows_squared_) return {};
  Line line{.known = true};
  line.row = std::max((weight_ * rows_seconds_ - rows_ * seconds_) / variance, 0.0);
  line.fixed = std::max((seconds_ - line.row * rows_) / weight_, 0.0);
  return line;
}

void DraftPace::AddStep(int32_t rows, double seconds) {
  if (const Line line = StepLine(); line.known) {
    seconds = std::min(seconds, kOutlier * (line.fixed + line.row * rows));
  }
  const auto add = [](double* sum, double value) { *sum = *sum * kKept + value; };
  add(&weight_, 1);
  add(&rows_, rows);
  add(&seconds_, seconds);
  add(&rows_squared_, double{1} * rows * rows);
  add(&rows_seconds_, rows * seconds);
  ++steps_;
}

void DraftPace::AddPass(double seconds) {
  constexpr int64_t kPasses = 16;  // that the mean goes by
  if (pass_seconds_ == 0 || refused_ >= kPasses) {
    pass_seconds_ = seconds;
  } else {
    pass_seconds_ += (std::min(seconds, kOutlier * pass_seconds_) - pass_seconds_) / kPasses;
  }
  refused_ = 0;
}

DraftPace::Drafts DraftPace::Begin(int32_t sessions) const {
  const Line line = StepLine();
  Drafts drafts;
  drafts.known_ = line.known;
  drafts.seconds_ = (line.fixed + pass_seconds_) / sessions + line.row;
  drafts.draft_seconds_ = line.row;
  return drafts;
}

// Tokens a second rise with a draft whose own are more than those so far.
bool DraftPace::Drafts::Pays(double right) {
  if (!known_) return true;
  const double more = reached_ * right;
  if (more * seconds_ <= draft_seconds_ * tokens_) return false;
  reached_ = more;
  tokens_ += more;
  seconds_ += draft_seconds_;
  return true;
}

bool DraftPace::PassPays(int32_t sessions, absl::Span<const double> right) {
  Drafts drafts = Begin(sessions);
  if (!drafts.known_) return true;
  const double plain_seconds = drafts.seconds_ - pass_seconds_ / sessions;
  for (const double chance : right) {
    if (!drafts.Pays(chance)) break;
  }
  if (drafts.tokens_ * plain_seconds > drafts.seconds_) return true;
  pass_seconds_ *= kKept;
  ++refused_;
  return false;
}

}  // namespace dsv4
