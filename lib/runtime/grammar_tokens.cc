// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/grammar_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "lib/text/completion_markup.h"

namespace dsv4 {

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

}  // namespace dsv4
