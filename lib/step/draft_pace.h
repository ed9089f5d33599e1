// SPDX-License-Identifier: Apache-2.0
// Chooses how many drafts of a block to verify: weighs the measured cost of a batch token and of a
// drafter pass against the number of tokens that the drafts are likely to give. Changes the speed
// of the text, never the text.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

class DraftPace {
 public:
  // With fewer measured steps, or steps of one size only, every draft is verified.
  static constexpr int64_t kFewestSteps = 8;

  // Reports that a step of `rows` rows, in which every session chose a token, took `seconds`,
  // without the time for drafting.
  void AddStep(int32_t rows, double seconds);
  // Reports that a pass of the drafter took `seconds`.
  void AddPass(double seconds);

  // The drafts of one session in a step. The drafter's pass drafts for all `sessions` sessions.
  class Drafts {
   public:
    // Whether one more draft saves time. If so, it is added. `right`: the probability that it is
    // accepted if all drafts before it are.
    bool Pays(double right);

   private:
    friend class DraftPace;
    bool known_ = false;
    double reached_ = 1;  // probability that all drafts so far are accepted
    double tokens_ = 1, seconds_ = 0, draft_seconds_ = 0;
  };
  Drafts Begin(int32_t sessions) const;
  // Whether a drafter pass saves time. right[i]: the probability that draft i is accepted if all
  // drafts before it are. Each refusal lowers the assumed cost of a pass a little, so that a pass
  // is measured again after some time: one slow pass does not stop drafting for good.
  bool PassPays(int32_t sessions, absl::Span<const double> right);

 private:
  // The seconds of a step: fixed + row * rows. Not known with too few steps.
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
