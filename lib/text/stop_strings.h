// SPDX-License-Identifier: Apache-2.0
// Ends a streaming text before its first stop string, however the text is split into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dsv4 {

// The first stop string is the one that is complete first; of several that end together, the
// longest. One thread at a time.
class StopStrings {
 public:
  static constexpr size_t kMaxStrings = 16;
  static constexpr size_t kMaxBytes = 256;  // of each

  // Without strings, all text passes. Errors: InvalidArgument for too many strings, and for one
  // that is empty, too long or not UTF-8.
  StopStrings() = default;
  static absl::StatusOr<StopStrings> Create(absl::Span<const std::string> strings);

  // Appends the text so far to *out, except the longest suffix that may begin a stop string (at
  // most kMaxBytes - 1 bytes). Appends whole characters if `text` has whole characters. Returns
  // true if a stop string is complete: *out then ends before it, the rest of `text` is dropped, and
  // the next call begins a new text. Linear time; allocates only to grow *out.
  bool Push(absl::string_view text, std::string* out);

  // Ends the text: appends what was held back. The next call begins a new text.
  void Flush(std::string* out);

  // Drops the text that is held back.
  void Reset();

  bool empty() const { return patterns_.empty(); }

 private:
  // Knuth, Morris and Pratt: `border[n]` is the length of the longest proper prefix of the first n
  // bytes that is also their end.
  struct Pattern {
    std::string bytes;
    std::vector<uint16_t> border;
    size_t matched = 0;  // bytes that the text so far ends with
  };

  // Appends the held text and `text` to *out, except the last `kept` bytes, which are then held.
  void Release(absl::string_view text, size_t kept, std::string* out);

  std::vector<Pattern> patterns_;
  std::string held_;
};

}  // namespace dsv4
