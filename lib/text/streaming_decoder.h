// SPDX-License-Identifier: Apache-2.0
// Decodes token ids one at a time, to whole UTF-8 characters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The joined texts of all Push calls and Flush equal Tokenizer::Decode of the same ids.
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

  // Appends U+FFFD if bytes are held back. The next call begins a new text.
  void Flush(std::string* text);

 private:
  // Room for the held bytes and a token of usual length, so that a step allocates nothing.
  static constexpr size_t kHeldBytes = 3, kMostBytes = size_t{1} << 16;

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace dsv4
