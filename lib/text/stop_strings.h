// SPDX-License-Identifier: Apache-2.0
// Ends a text that streams before the first stop string in it, whatever the pieces it arrives in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dsv4 {

// The first stop string is the one whose last byte comes first; of several that end there, the
// longest. One thread at a time.
class StopStrings {
 public:
  static constexpr size_t kMaxStrings = 16;
  static constexpr size_t kMaxBytes = 256;  // of each

  // None: everything passes. InvalidArgument for too many, an empty one, one that is too long or
  // not UTF-8.
  StopStrings() = default;
  static absl::StatusOr<StopStrings> Create(absl::Span<const std::string> strings);

  // Appends to *out what is decided of the text so far: all of it but the longest end that may
  // begin a stop string, at most kMaxBytes - 1 bytes; whole characters if `text` is. True when a
  // stop string is complete: *out ends before it, and the rest of `text` is dropped; the next text
  // begins anew. Linear time; allocates only to grow *out.
  bool Push(absl::string_view text, std::string* out);

  // The text is over: appends what is held back. Ready for another text afterwards.
  void Flush(std::string* out);

  // Drops what is held back.
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
