// SPDX-License-Identifier: Apache-2.0
// The tokens of a timeline and their number of occurrences, for penalties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace dsv4 {

// Ids are in [0, vocab) everywhere. Nothing allocates after construction.
class TokenHistory {
 public:
  explicit TokenHistory(int64_t vocab);

  // Replaces the history by `prompt`. O(tokens of both).
  void Reset(absl::Span<const int32_t> prompt);

  // Adds one token of output. O(1).
  void Push(int32_t token);
  // Undoes the last Push. REQUIRES: `token` is the last token pushed and not undone.
  void Pop(int32_t token);

  // The distinct tokens of prompt and output, in order of first appearance.
  absl::Span<const int32_t> tokens() const { return seen_; }
  // Occurrences in the output.
  int32_t outputs(int32_t token) const { return outputs_[static_cast<size_t>(token)]; }

 private:
  std::vector<uint8_t> in_prompt_;  // [vocab]
  std::vector<int32_t> outputs_;    // [vocab]
  std::vector<int32_t> seen_;
};

}  // namespace dsv4
