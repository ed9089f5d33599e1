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
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

class LogitRows {
 public:
  // How a row's token is chosen. `allowed` is laid out as CandidateQuery's; empty: all tokens with
  // text. At most one for each row.
  struct Question {
    int32_t row = 0;
    CandidateRule rule;
    absl::Span<const uint32_t> allowed{};
  };

  // Device bytes beside the logits; 0 where they are the host's.
  static int64_t DeviceBytes(const Device& device, int32_t rows, int64_t vocab);
  // `logits` [rows, vocab] and `memory` (DeviceBytes, 64-byte aligned) are the device's.
  // `with_text` is a mask of tokens; empty: all.
  absl::Status Place(Device* device, int32_t rows, int64_t vocab, float* logits, std::byte* memory,
                     absl::Span<const uint32_t> with_text);
  // Chooses the kernel for the most questions.
  static absl::Status Prepare(const Device& device, Dispatch* dispatch, int32_t rows,
                              int64_t vocab);

  // The head was launched for `rows` rows: nothing of the last ones is left.
  void Begin(int32_t rows);
  // Has the questions answered, and waits for it. Nothing where the host has all logits anyway.
  absl::Status Answer(const Dispatch& dispatch, const LaunchContext& launch,
                      absl::Span<const Question> questions);
  // The candidates of a row; null where none were asked for, or there are too many.
  const CandidateList* Candidates(int32_t row) const;
  const CandidateRule& RuleOf(int32_t row) const { return rules_[static_cast<size_t>(row)]; }

  // Brings rows [first, first + count) to the host, and waits for it.
  absl::Status Fetch(int32_t first, int32_t count);
  // All logits of a row, which it fetches if need be. Any threads, each with rows of its own.
  absl::StatusOr<absl::Span<const float>> Row(int32_t row);

 private:
  Device* device_ = nullptr;  // null: host memory
  int64_t vocab_ = 0;
  float* logits_ = nullptr;
  Buffer host_logits_;                // pinned
  Buffer lists_;                      // pinned: the kernel writes them there
  uint32_t* with_text_ = nullptr;     // the device's
  std::byte* questions_ = nullptr;    // the device's: queries, then masks
  std::vector<std::byte> image_;      // of questions_, reserved
  std::vector<uint8_t> fetched_;      // of each row
  std::vector<int32_t> question_of_;  // of each row, or -1
  std::vector<CandidateRule> rules_;  // of each row
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
