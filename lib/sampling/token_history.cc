// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/token_history.h"

namespace dsv4 {

TokenHistory::TokenHistory(int64_t vocab)
    : in_prompt_(static_cast<size_t>(vocab)), outputs_(static_cast<size_t>(vocab)) {
  seen_.reserve(static_cast<size_t>(vocab));
}

void TokenHistory::Reset(absl::Span<const int32_t> prompt) {
  for (const int32_t token : seen_) {
    in_prompt_[static_cast<size_t>(token)] = 0;
    outputs_[static_cast<size_t>(token)] = 0;
  }
  seen_.clear();
  for (const int32_t token : prompt) {
    uint8_t& in_prompt = in_prompt_[static_cast<size_t>(token)];
    if (in_prompt == 0) seen_.push_back(token);
    in_prompt = 1;
  }
}

void TokenHistory::Push(int32_t token) {
  const size_t i = static_cast<size_t>(token);
  if (outputs_[i]++ == 0 && in_prompt_[i] == 0) seen_.push_back(token);
}

void TokenHistory::Pop(int32_t token) {
  const size_t i = static_cast<size_t>(token);
  // In reverse order the first appearance to go is the last of `seen_`.
  if (--outputs_[i] == 0 && in_prompt_[i] == 0) seen_.pop_back();
}

}  // namespace dsv4
