// SPDX-License-Identifier: Apache-2.0
#include "lib/step/engine_text.h"

#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/text/completion_markup.h"
#include "lib/text/tokenizer_files.h"

namespace dsv4 {
namespace {

// `vocab` ids; those without a token and those of added tokens have no bytes, except the mark of
// tool calls.
std::shared_ptr<const grammar::Vocabulary> GrammarTokens(const Tokenizer& tokenizer,
                                                         int64_t vocab) {
  std::vector<std::string> bytes(static_cast<size_t>(vocab));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.HasToken(id)) continue;
    const absl::string_view token = *tokenizer.TokenBytes(id);
    if (tokenizer.FindAddedToken(token) != id) bytes[static_cast<size_t>(id)] = std::string(token);
  }
  const int32_t markup = tokenizer.FindAddedToken(markup::kDsml).value_or(-1);
  if (markup >= 0) bytes[static_cast<size_t>(markup)] = std::string(markup::kDsml);
  auto vocabulary = std::make_shared<grammar::Vocabulary>(std::move(bytes));
  vocabulary->markup_token = markup;
  return vocabulary;
}

}  // namespace

absl::Status EngineText::Load(const std::string& path, int64_t vocab) {
  const absl::StatusOr<TokenizerText> text = ReadTokenizer(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(text.status());
  const std::string& source = text->source;
  DSV4_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::FromJson(text->json, source));
  if (tokenizer_->max_id() >= vocab) {
    return Corrupt(source, ": token id ", tokenizer_->max_id(),
                   " is beyond the model's vocab_size ", vocab);
  }
  vocab_ = vocab;
  hash_ = HashOf(text->json);
  chat_encoder_ = text->encoder;
  if (!chat_encoder_->guess.empty()) {
    // Every 0731 model has a DSpark drafter, so that only its keys leave a doubt.
    const bool doubt = chat_encoder_->encoder == ChatEncoder::k0731;
    Log(doubt ? LogLevel::kWarning : LogLevel::kInfo, path, ": no file tells the chat encoder; ",
        ChatEncoderName(chat_encoder_->encoder), " is a guess, because ", chat_encoder_->guess,
        " (encoding/encoding_dsv4.py would tell it; the option encoder sets it)");
  }
  return absl::OkStatus();
}

absl::StatusOr<const Tokenizer*> EngineText::tokenizer() const {
  if (tokenizer_ == nullptr) return NotFound("the model folder has no tokenizer.json");
  return tokenizer_.get();
}

absl::StatusOr<std::shared_ptr<const grammar::Vocabulary>> EngineText::grammar_tokens() const {
  DSV4_ASSIGN_OR_RETURN(const Tokenizer* tokens, tokenizer());
  std::call_once(grammar_tokens_once_, [&] { grammar_tokens_ = GrammarTokens(*tokens, vocab_); });
  return grammar_tokens_;
}

}  // namespace dsv4
