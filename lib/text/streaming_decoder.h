// SPDX-License-Identifier: Apache-2.0
// Token ids to text one id at a time, cut only between UTF-8 characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The texts of all Push calls and of Flush, joined, are Tokenizer::Decode of the same ids.
// One thread at a time.
class StreamingDecoder {
 public:
  // `tokenizer` must outlive this object.
  explicit StreamingDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer), options_(options) {
    held_.reserve(std::min(tokenizer.max_token_bytes() + kHeldBytes, kMostBytes));
  }

  // Appends the text that `id` completes to *text: valid UTF-8, often nothing. At most 3 bytes are
  // held back: the start of a character that a later id may complete. InvalidArgument as
  // Tokenizer::TokenBytes; the state is then as before the call. Allocates only to grow *text.
  absl::Status Push(int32_t id, std::string* text);

  // Appends what is held back, as U+FFFD (nothing when nothing is). Ready for another text
  // afterwards.
  void Flush(std::string* text);

 private:
  // Room for all but absurd tokens after what is held, so that a step allocates nothing.
  static constexpr size_t kHeldBytes = 3, kMostBytes = size_t{1} << 16;

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace dsv4
