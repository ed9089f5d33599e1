// SPDX-License-Identifier: Apache-2.0
// Drafts by looking up what followed the last tokens where they came before: prompts that are
// quoted, code that is edited, names that return. It needs no weights and keeps nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace dsv4 {

// The longest and shortest end of a timeline that is looked for.
inline constexpr int64_t kLongestNgram = 8, kShortestNgram = 2;

// Fills `drafts` with what followed the longest end of `timeline`, of kShortestNgram to
// kLongestNgram tokens, that came before; the last place where it did. Returns how many it drafts:
// all, or none where there is no such place. Reads the timeline once.
size_t DraftByNgram(absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts);

}  // namespace dsv4
