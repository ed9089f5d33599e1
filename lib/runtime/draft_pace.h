// SPDX-License-Identifier: Apache-2.0
// How many drafts of a block pay: what a row of a step and a pass of the drafter cost, as measured,
// against the tokens that drafts are likely to give. It decides how fast text comes, never what it
// is.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

class DraftPace {
 public:
  // Fewer steps measured than these, or all of one size, and every draft pays.
  static constexpr int64_t kFewestSteps = 8;

  // A step of `rows` rows that chose tokens for all of its sessions took `seconds`, without
  // drafting.
  void AddStep(int32_t rows, double seconds);
  // So did a pass of the drafter.
  void AddPass(double seconds);

  // The drafts that one of `sessions` sessions makes in a step, by a pass that drafts for all.
  class Drafts {
   public:
    // Whether a further draft pays that is accepted with probability `right` once those before it
    // are; then it is counted in.
    bool Pays(double right);

   private:
    friend class DraftPace;
    bool known_ = false;
    double reached_ = 1;  // probability that all drafts so far are accepted
    double tokens_ = 1, seconds_ = 0, draft_seconds_ = 0;
  };
  Drafts Begin(int32_t sessions) const;
  // Whether a pass pays, of drafts that are accepted with these probabilities, each once those
  // before it are. What does not pay is taken for a little cheaper the next time, so that it is
  // measured again: a pass that was held up does not end drafts for good.
  bool PassPays(int32_t sessions, absl::Span<const double> right);

 private:
  // Seconds of a step: fixed + row * rows; nothing is known with too few steps.
  struct Line {
    bool known = false;
    double fixed = 0, row = 0;
  };
  Line StepLine() const;

  // Sums over steps, older ones with less weight.
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
  int64_t steps_ = 0;
  double pass_seconds_ = 0;  // 0: none was measured
  int64_t refused_ = 0;      // times that a pass did not pay since one was measured
};

}  // namespace dsv4
