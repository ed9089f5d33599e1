// SPDX-License-Identifier: Apache-2.0
// Drafts the tokens that followed an earlier occurrence of the last tokens: useful for quoted
// prompts, edited code and repeated names. Needs no weights and keeps no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

// The longest and shortest suffix of a timeline that is searched for.
inline constexpr int64_t kLongestNgram = 8, kShortestNgram = 2;

// Finds the longest suffix of `timeline`, of kShortestNgram to kLongestNgram tokens, that occurs
// earlier, and its last earlier occurrence. Fills `drafts` with the tokens that followed. Returns
// the number of drafts: all, or 0 without an occurrence. Reads the timeline once.
size_t DraftByNgram(absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts);

}  // namespace dsv4
