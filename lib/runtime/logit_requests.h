// SPDX-License-Identifier: Apache-2.0
// Which rows of a pass need logits, and which part of them suffices. Memory is reserved for the
// engine's limits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/model/model_ranks.h"

namespace dsv4 {

class LogitRequests {
 public:
  explicit LogitRequests(const StepLimits& limits);

  void Clear();
  bool empty() const { return rows_.empty(); }
  // The place of the next row that is added, among the logits.
  int32_t size() const { return static_cast<int32_t>(rows_.size()); }
  // Requests logits of row `row`; `question`: the part that suffices; none: all.
  void Add(int32_t row, const std::optional<LogitQuestion>& question = {});

  absl::Span<const int32_t> rows() const { return rows_; }
  // For the pass.
  HeadRows head() const { return {.rows = rows_, .questions = questions_}; }
  // Waits for the candidates, and for the logits of the rows that no rule is for. *device_idle: the
  // device has nothing left to do.
  absl::Status Fetch(ModelRanks* model, bool* device_idle) const;

 private:
  std::vector<int32_t> rows_;
  std::vector<LogitQuestion> questions_;  // about them, in their order
};

}  // namespace dsv4
