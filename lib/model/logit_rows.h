// SPDX-License-Identifier: Apache-2.0
// The logits of the rows that went through the head last. On a device with memory of its own they
// stay there: the host receives the rows that somebody asks for, and of the others the candidates
// of the next token.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/token_candidates.h"
#include "lib/device/device.h"

namespace dsv4 {

// How the token after a row of the head is chosen. `allowed` is laid out as CandidateQuery's;
// empty: all tokens with text.
struct LogitQuestion {
  int32_t row = 0;
  int32_t list = -1;  // where the answer goes; -1: to the row's own
  CandidateRule rule;
  absl::Span<const uint32_t> allowed{};
  uint64_t allowed_id = 0;
  int32_t place() const { return list >= 0 ? list : row; }
};

// What is wanted of the head after a pass.
struct HeadRows {
  absl::Span<const int32_t> rows{};             // of the pass: those whose logits are wanted
  absl::Span<const LogitQuestion> questions{};  // at most one about each of them
};

class LogitRows {
 public:
  // `logits` [rows, vocab] is the device's. Pins memory where the host has none of it.
  absl::Status Place(Device* device, int32_t rows, int64_t vocab, float* logits);
  // Where the device answers questions: the list of row r at [r]; null where the host has all
  // logits anyway.
  CandidateList* lists() { return reinterpret_cast<CandidateList*>(lists_.data()); }
  // How sure a drafter is of row r at [r], where it says so.
  float* confidences() { return reinterpret_cast<float*>(confidences_.data()); }

  // The head was launched for `head`: nothing of the last rows is left. Answers to its questions
  // are there once the device has finished.
  void Begin(const HeadRows& head);
  // The device changes these rows' logits, too, and answers further questions.
  void Change(absl::Span<const int32_t> rows, absl::Span<const LogitQuestion> questions);
  // The candidates of a row; null where none were asked for, or there are too many.
  const CandidateList* Candidates(int32_t row) const;
  const CandidateRule& RuleOf(int32_t row) const { return rows_[static_cast<size_t>(row)].rule; }

  // Brings rows [first, first + count) to the host, and waits for it.
  absl::Status Fetch(int32_t first, int32_t count);
  // All logits of a row, which it fetches if need be. Any threads, each with rows of its own.
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

// The logits that one token is chosen from: a row of those, or some that the host has.
class TokenLogits {
 public:
  TokenLogits(LogitRows* rows, int32_t row) : rows_(rows), row_(row) {}
  explicit TokenLogits(absl::Span<const float> all) : all_(all) {}

  absl::StatusOr<absl::Span<const float>> All() const {
    if (rows_ == nullptr) return all_;
    return rows_->Row(row_);
  }
  // Null: All is to be asked.
  const CandidateList* candidates() const {
    return rows_ == nullptr ? nullptr : rows_->Candidates(row_);
  }
  // REQUIRES: there are candidates.
  const CandidateRule& rule() const { return rows_->RuleOf(row_); }

 private:
  LogitRows* rows_ = nullptr;
  int32_t row_ = 0;
  absl::Span<const float> all_;
};

}  // namespace dsv4
