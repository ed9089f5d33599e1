// SPDX-License-Identifier: Apache-2.0
#include "lib/step/speculation.h"

#include <bit>
#include <numeric>

namespace dsv4 {

namespace {

constexpr double kMeanSteps = 8;      // that Speculation::right goes by
constexpr double kForgetSteps = 128;  // that it goes by of drafts that are not made

}  // namespace

int64_t SpeculationStats::steps() const {
  return std::accumulate(steps_by_accepted.begin(), steps_by_accepted.end(), int64_t{0});
}

double SpeculationStats::acceptance_length() const {
  const int64_t count = steps();
  return count == 0 ? 0 : static_cast<double>(accepted + count) / static_cast<double>(count);
}

double SpeculationStats::first_acceptance() const {
  const int64_t count = steps();
  return count == 0
             ? 0
             : static_cast<double>(count - steps_by_accepted[0]) / static_cast<double>(count);
}

void Speculation::Record(int32_t accepted) {
  for (size_t i = static_cast<size_t>(count_); i < right_.size(); ++i) {
    right_[i] += (1 - right_[i]) / kForgetSteps;
  }
  if (count_ == 0) return;
  for (int32_t i = 0; i < count_; ++i) recent_ = recent_ << 1 | (i < accepted ? 1 : 0);
  for (int32_t i = 0; i <= accepted && i < count_; ++i) {
    double& chance = right_[static_cast<size_t>(i)];
    chance += ((i < accepted ? 1 : 0) - chance) / kMeanSteps;
  }
  stats_.drafted += count_;
  stats_.accepted += accepted;
  ++stats_.steps_by_accepted[static_cast<size_t>(accepted)];
  static_assert(kJudgedDrafts == 64, "recent_ has a bit for each");
  if (stats_.drafted >= kJudgedDrafts && std::popcount(recent_) < kFewestAccepted) {
    stats_.fall_back = "fewer than 10 % of the last 64 draft tokens were accepted";
  }
  count_ = 0;
}

void Speculation::Reset() {
  count_ = 0;
  stats_ = {};
  right_ = Hopeful();
  recent_ = 0;
}

}  // namespace dsv4
