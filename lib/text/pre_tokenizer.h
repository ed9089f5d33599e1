// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizer of a tokenizer.json: cuts plain text into the words within which tokens are
// formed.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/split_pattern.h"

namespace dsv4 {

class PreTokenizer {
 public:
  // Reads the object "pre_tokenizer" of the document `root`: a Sequence of Split steps with
  // behavior Isolated, then ByteLevel without prefix space and regex; or only ByteLevel. Errors:
  // Unsupported for others (named).
  static absl::StatusOr<PreTokenizer> FromJson(const JsonValue& root, absl::string_view where);

  // Calls `emit` for the words of `text` in order. No word is empty; joined, they are the text.
  // Errors: those of SplitPattern::ForEachPiece and `emit`. REQUIRES: `text` is UTF-8.
  absl::Status Split(absl::string_view text, MatchState& state,
                     absl::FunctionRef<absl::Status(absl::string_view)> emit) const;

 private:
  // Splits `text` by all patterns from `step` on.
  absl::Status SplitFrom(size_t step, absl::string_view text, MatchState& state,
                         absl::FunctionRef<absl::Status(absl::string_view)> emit) const;

  std::vector<SplitPattern> patterns_;
};

}  // namespace dsv4
