// SPDX-License-Identifier: Apache-2.0
#include "lib/step/logit_requests.h"

#include "lib/base/status_macros.h"

namespace dsv4 {

LogitRequests::LogitRequests(const StepLimits& limits) {
  rows_.reserve(static_cast<size_t>(limits.rows));
  questions_.reserve(static_cast<size_t>(limits.logit_rows));
}

void LogitRequests::Clear() {
  rows_.clear();
  questions_.clear();
}

void LogitRequests::Add(int32_t row, const std::optional<LogitQuestion>& question) {
  if (question) {
    questions_.push_back(*question);
    questions_.back().row = size();
  }
  rows_.push_back(row);
}

// One transfer for rows that follow each other.
absl::Status LogitRequests::Fetch(ModelRanks* model, bool* device_idle) const {
  const auto fetch = [&](int32_t first, int32_t end) {
    return first < end ? model->logits().Fetch(first, end - first) : absl::OkStatus();
  };
  if (!questions_.empty()) {
    DSV4_RETURN_IF_ERROR(model->Synchronize());
    *device_idle = true;
  }
  int32_t first = 0;
  for (const LogitQuestion& question : questions_) {
    DSV4_RETURN_IF_ERROR(fetch(first, question.row));
    first = question.row + 1;
  }
  return fetch(first, size());
}

}  // namespace dsv4
