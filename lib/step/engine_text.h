// SPDX-License-Identifier: Apache-2.0
// The text side of an engine: its tokenizer, the tokens of grammars, and the chat encoder. Fixed
// once the engine is open; calls on const objects from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/grammar/grammar.h"
#include "lib/io/content_hash.h"
#include "lib/text/chat_profile.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

class EngineText {
 public:
  // Reads the tokenizer of a model; a model without one is fine. Errors: those of ReadTokenizer and
  // Tokenizer::FromJson; Corrupt for ids outside [0, vocab).
  absl::Status Load(const std::string& path, int64_t vocab);

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  // NotFound without a tokenizer.
  absl::StatusOr<const Tokenizer*> tokenizer() const;
  // Of tokenizer.json, or of the text made from the keys; zero without both.
  const ContentHash& hash() const { return hash_; }
  // The encoder that the folder shows, or that was guessed; `other` if it has no tokenizer.
  ChatEncoder ChatEncoderOr(ChatEncoder other) const {
    return chat_encoder_ ? chat_encoder_->encoder : other;
  }
  const std::optional<FoundChatEncoder>& chat_encoder() const { return chat_encoder_; }
  // The tokens as grammars see them, made by the first call. NotFound without a tokenizer.
  absl::StatusOr<std::shared_ptr<const grammar::Vocabulary>> grammar_tokens() const;

 private:
  int64_t vocab_ = 0;
  std::unique_ptr<const Tokenizer> tokenizer_;
  ContentHash hash_;
  std::optional<FoundChatEncoder> chat_encoder_;
  mutable std::once_flag grammar_tokens_once_;
  mutable std::shared_ptr<const grammar::Vocabulary> grammar_tokens_;
};

}  // namespace dsv4
