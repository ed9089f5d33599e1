// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_decoder.h"

#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"

namespace dsv4 {

absl::Status StreamingDecoder::Push(int32_t id, std::string* text) {
  DSV4_ASSIGN_OR_RETURN(const absl::string_view token, tokenizer_->TokenBytes(id));
  if (options_.skip_special_tokens && tokenizer_->IsSpecial(id)) return absl::OkStatus();
  held_.append(token.data(), token.size());
  held_.erase(0, AppendRepairedUtf8(held_, text));
  return absl::OkStatus();
}

void StreamingDecoder::Flush(std::string* text) {
  // The held bytes are the beginning of one character, so they are one ill-formed part.
  if (!held_.empty()) text->append(kReplacementCharacter.data(), kReplacementCharacter.size());
  held_.clear();
}

}  // namespace dsv4
