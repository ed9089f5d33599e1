// SPDX-License-Identifier: Apache-2.0
// The tokens of a tokenizer as grammars see them.
#pragma once

#include <cstdint>
#include <memory>

#include "lib/grammar/grammar.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// `vocab` ids; those without a token and those of added tokens have no bytes, except the mark of
// tool calls.
std::shared_ptr<const grammar::Vocabulary> GrammarTokens(const Tokenizer& tokenizer, int64_t vocab);

}  // namespace dsv4
