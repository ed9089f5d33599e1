// SPDX-License-Identifier: Apache-2.0
// The rows of a pass that need logits, and for each the candidates that suffice. Memory is reserved
// for the engine's limits.
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
  // The index in the logits of the next row to be added.
  int32_t size() const { return static_cast<int32_t>(rows_.size()); }
  // Requests the candidates that `question` asks for, or all logits of row `row` without a
  // question.
  void Add(int32_t row, const std::optional<LogitQuestion>& question = {});

  absl::Span<const int32_t> rows() const { return rows_; }
  // The argument for the pass.
  HeadRows head() const { return {.rows = rows_, .questions = questions_}; }
  // Waits for the candidates, and for the logits of rows without a question. *device_idle: the
  // device has finished all work.
  absl::Status Fetch(ModelRanks* model, bool* device_idle) const;

 private:
  std::vector<int32_t> rows_;
  std::vector<LogitQuestion> questions_;  // about them, in their order
};

}  // namespace dsv4
