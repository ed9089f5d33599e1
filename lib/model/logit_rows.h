// SPDX-License-Identifier: Apache-2.0
// The logits of the last rows of the head. On a device with memory of its own they stay there: the
// host receives the candidates of the next token, and the rows that are requested.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/token_candidates.h"
#include "lib/device/device.h"

namespace dsv4 {

// How the token after a row of the head is chosen. `allowed`: a mask as in CandidateQuery; empty:
// all tokens with text.
struct LogitQuestion {
  int32_t row = 0;
  int32_t list = -1;  // index of the list that gets the answer; -1: that of the row
  CandidateRule rule;
  absl::Span<const uint32_t> allowed{};
  uint64_t allowed_id = 0;
  int32_t place() const { return list >= 0 ? list : row; }
};

// The input of the head after a pass.
struct LogitRequests {
  std::vector<int32_t> rows{};             // rows of the pass whose logits are computed
  std::vector<LogitQuestion> questions{};  // at most one about each of them, in their order

  bool empty() const { return rows.empty(); }
  // The index in the logits of the next row to be added.
  int32_t size() const { return static_cast<int32_t>(rows.size()); }
  // Reserves memory for `most_rows` rows, with a question about each of `most_questions`.
  void Reserve(int32_t most_rows, int32_t most_questions);
  void Clear();
  // Requests the candidates that `question` asks for, or all logits of row `row` without a
  // question.
  void Add(int32_t row, const std::optional<LogitQuestion>& question = {});
};

class LogitRows {
 public:
  LogitRows() = default;
  // The logits of one row in host memory, which must outlive this.
  explicit LogitRows(absl::Span<float> row)
      : vocab_(static_cast<int64_t>(row.size())), logits_(row.data()) {}
  // `logits`: [rows, vocab] of the device. Allocates pinned memory if the host cannot read it.
  absl::Status Place(Device* device, int32_t rows, int64_t vocab, float* logits);
  // The device's answers to questions: entry r is the list of row r. Null if the host has all
  // logits.
  CandidateList* lists() { return reinterpret_cast<CandidateList*>(lists_.data()); }
  // Entry r: a drafter's confidence in row r, if it has a confidence head.
  float* confidences() { return reinterpret_cast<float*>(confidences_.data()); }

  // The head was launched for `head`: the last rows are discarded. Answers to its questions are
  // available after the device has finished.
  void Begin(const LogitRequests& head);
  // The device changes these rows' logits, too, and answers further questions.
  void Change(absl::Span<const int32_t> rows, absl::Span<const LogitQuestion> questions);
  // The candidates of a row; null if none were asked for, or there are too many.
  const CandidateList* Candidates(int32_t row) const;
  const CandidateRule& RuleOf(int32_t row) const { return rows_[static_cast<size_t>(row)].rule; }

  // Copies rows [first, first + count) to the host, and waits for the copy.
  absl::Status Fetch(int32_t first, int32_t count);
  // All logits of a row; copies them from the device if necessary. Threads: any, each for other
  // rows.
  absl::StatusOr<absl::Span<const float>> Row(int32_t row);

 private:
  struct State {
    bool fetched = false, asked = false;
    CandidateRule rule;
  };
  Device* device_ = nullptr;  // null: host memory
  int64_t vocab_ = 0;
  float* logits_ = nullptr;
  Buffer host_logits_;          // pinned
  Buffer lists_, confidences_;  // pinned: the kernels write them there
  std::vector<State> rows_;
};

}  // namespace dsv4
