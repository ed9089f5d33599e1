// SPDX-License-Identifier: Apache-2.0
// The drafts of one session: the tokens to verify in its next step, and statistics of acceptance.
// Drafter makes the drafts; the timeline verifies them.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/sampling/params.h"

namespace dsv4 {

// Since the last sync.
struct SpeculationStats {
  int64_t drafted = 0, accepted = 0;  // tokens
  // Steps that verified drafts, by how many they accepted. Such a step chooses one token more.
  std::array<int64_t, kMaxDraftTokens + 1> steps_by_accepted{};
  absl::string_view
      fall_back;  // why drafting was given up, until the next sync; empty = it was not

  int64_t steps() const;
  // Tokens chosen per step that verified drafts; 0 without one.
  double acceptance_length() const;
  // Share of those steps that accepted their first draft.
  double first_acceptance() const;
};

class Speculation {
 public:
  // Drafting stops if fewer than kFewestAccepted of the last kJudgedDrafts were accepted. At a
  // tenth, verification costs more than it saves, however cheap drafts are.
  static constexpr int32_t kJudgedDrafts = 64, kFewestAccepted = 7;

  // Room for `max_drafts` drafts, at most kMaxDraftTokens.
  explicit Speculation(int32_t max_drafts) : max_drafts_(max_drafts) {}

  int32_t max_drafts() const { return max_drafts_; }
  absl::Span<const int32_t> drafts() const {
    return absl::MakeConstSpan(drafts_).subspan(0, static_cast<size_t>(count_));
  }
  // REQUIRES: room for one.
  void Add(int32_t draft) { drafts_[static_cast<size_t>(count_++)] = draft; }
  void Clear() { count_ = 0; }
  // Keeps the first `count`. REQUIRES: there are at least as many.
  void Keep(int32_t count) { count_ = count; }

  // Drops all drafts, which were verified. The first `accepted` of them were accepted.
  void Record(int32_t accepted);
  // The probability that draft i is accepted if all drafts before it are, from the last steps that
  // verified it. 1 at first, and again after many steps without it, so that it is tried once more.
  absl::Span<const double> right() const { return right_; }
  bool fell_back() const { return !stats_.fall_back.empty(); }
  const SpeculationStats& stats() const { return stats_; }
  // A new prompt: no drafts, no statistics.
  void Reset();

 private:
  static constexpr std::array<double, kMaxDraftTokens> Hopeful() {
    std::array<double, kMaxDraftTokens> right{};
    for (double& chance : right) chance = 1;
    return right;
  }

  int32_t max_drafts_;
  std::array<int32_t, kMaxDraftTokens> drafts_{};
  int32_t count_ = 0;
  SpeculationStats stats_;
  std::array<double, kMaxDraftTokens> right_ = Hopeful();
  uint64_t recent_ = 0;  // one bit per draft, the last one lowest: accepted
};

}  // namespace dsv4
