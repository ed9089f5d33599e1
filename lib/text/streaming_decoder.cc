// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_decoder.h"

#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"
#include "lib/text/unicode.h"

namespace dsv4 {

absl::StatusOr<std::string> StreamingDecoder::Push(int32_t id) {
  DSV4_ASSIGN_OR_RETURN(const absl::string_view token, tokenizer_->TokenBytes(id));
  std::string text;
  if (options_.skip_special_tokens && tokenizer_->IsSpecial(id)) return text;
  held_.append(token.data(), token.size());
  held_.erase(0, AppendRepairedUtf8(held_, &text));
  return text;
}

std::string StreamingDecoder::Finish() {
  // What is held is the start of one character: one ill-formed part.
  std::string text(held_.empty() ? "" : kReplacementCharacter);
  held_.clear();
  return text;
}

}  // namespace dsv4
