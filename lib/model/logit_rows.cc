// SPDX-License-Identifier: Apache-2.0
#include "lib/model/logit_rows.h"

#include <algorithm>

#include "lib/base/status_macros.h"

namespace dsv4 {

void LogitRequests::Reserve(int32_t most_rows, int32_t most_questions) {
  rows.reserve(static_cast<size_t>(most_rows));
  questions.reserve(static_cast<size_t>(most_questions));
}

void LogitRequests::Clear() {
  rows.clear();
  questions.clear();
}

void LogitRequests::Add(int32_t row, const std::optional<LogitQuestion>& question) {
  if (question) {
    questions.push_back(*question);
    questions.back().row = size();
  }
  rows.push_back(row);
}

absl::Status LogitRows::Place(Device* device, int32_t rows, int64_t vocab, float* logits) {
  logits_ = logits;
  vocab_ = vocab;
  DSV4_ASSIGN_OR_RETURN(confidences_,
                        device->AllocateHost(rows * int64_t{sizeof(float)}, "confidences"));
  if (device->host_memory()) return absl::OkStatus();
  device_ = device;
  rows_.resize(static_cast<size_t>(rows));
  DSV4_ASSIGN_OR_RETURN(host_logits_,
                        device->AllocateHost(rows * vocab * int64_t{sizeof(float)}, "logits"));
  DSV4_ASSIGN_OR_RETURN(
      lists_, device->AllocateHost(rows * int64_t{sizeof(CandidateList)}, "candidates of tokens"));
  return absl::OkStatus();
}

void LogitRows::Begin(const LogitRequests& head) {
  if (device_ == nullptr) return;
  std::fill_n(rows_.begin(), head.rows.size(), State{});
  for (const LogitQuestion& question : head.questions) {
    rows_[static_cast<size_t>(question.place())] = {.asked = true, .rule = question.rule};
  }
}

void LogitRows::Change(absl::Span<const int32_t> rows, absl::Span<const LogitQuestion> questions) {
  if (device_ == nullptr) return;
  for (const int32_t row : rows) rows_[static_cast<size_t>(row)] = State{};
  for (const LogitQuestion& question : questions) {
    rows_[static_cast<size_t>(question.place())] = {.asked = true, .rule = question.rule};
  }
}

const CandidateList* LogitRows::Candidates(int32_t row) const {
  if (device_ == nullptr || !rows_[static_cast<size_t>(row)].asked) return nullptr;
  const CandidateList* list = reinterpret_cast<const CandidateList*>(lists_.data()) + row;
  return list->count >= 0 ? list : nullptr;
}

absl::Status LogitRows::Fetch(int32_t first, int32_t count) {
  if (device_ == nullptr) return absl::OkStatus();
  const int64_t row_bytes = vocab_ * int64_t{sizeof(float)};
  DSV4_RETURN_IF_ERROR(device_->Download(
      host_logits_.data() + first * row_bytes,
      reinterpret_cast<const std::byte*>(logits_) + first * row_bytes, count * row_bytes));
  for (int32_t row = first; row < first + count; ++row) {
    rows_[static_cast<size_t>(row)].fetched = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> LogitRows::Row(int32_t row) {
  if (device_ != nullptr && !rows_[static_cast<size_t>(row)].fetched) {
    DSV4_RETURN_IF_ERROR(Fetch(row, 1));
  }
  const float* const host =
      device_ == nullptr ? logits_ : reinterpret_cast<const float*>(host_logits_.data());
  return absl::MakeConstSpan(host + row * vocab_, static_cast<size_t>(vocab_));
}

}  // namespace dsv4
