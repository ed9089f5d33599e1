// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/engine_text.h"

#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/text/completion_markup.h"

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

absl::Status EngineText::Load(const std::string& folder, int64_t vocab) {
  const std::string path = folder + "/tokenizer.json";
  absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer = Tokenizer::Load(path);
  if (absl::IsNotFound(tokenizer.status())) return absl::OkStatus();
  if (!tokenizer.ok()) return tokenizer.status();
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if ((*tokenizer)->max_id() >= vocab) {
    return Corrupt(path, ": token id ", (*tokenizer)->max_id(),
                   " is beyond the model's vocab_size ", vocab);
  }
  vocab_ = vocab;
  hash_ = HashOf(file.bytes());
  tokenizer_ = *std::move(tokenizer);
  chat_encoder_ = FindChatEncoder(folder);
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
