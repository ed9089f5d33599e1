// SPDX-License-Identifier: Apache-2.0
// Log-probabilities in the form of OpenAI's chats and responses.
#pragma once

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/generation.h"

namespace server {

// {token, logprob, bytes, top_logprobs} of a token that was sampled with log-probabilities;
// `count` of the most likely tokens.
Json LogProbsOf(const Model& model, const Token& token, size_t count);

}  // namespace server
