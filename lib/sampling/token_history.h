// SPDX-License-Identifier: Apache-2.0
// Which tokens a timeline holds and how often: what the penalties look at. Not the timeline itself.
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

  // Forgets everything and takes `prompt`. O(its tokens and those forgotten).
  void Reset(absl::Span<const int32_t> prompt);

  // Adds one token of output. O(1).
  void Push(int32_t token);
  // Takes back the last Push; several are taken back in reverse order. REQUIRES: `token` is the
  // last one pushed and not taken back.
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
