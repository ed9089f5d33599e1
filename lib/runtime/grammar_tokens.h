// SPDX-License-Identifier: Apache-2.0
// The vocabulary for grammars.
#pragma once

#include <cstdint>
#include <memory>

#include "lib/grammar/grammar.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The bytes of `vocab` ids. Ids without a token and added tokens have none, except the marker of
// tool calls.
std::shared_ptr<const grammar::Vocabulary> GrammarTokens(const Tokenizer& tokenizer, int64_t vocab);

}  // namespace dsv4
