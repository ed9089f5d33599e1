// SPDX-License-Identifier: Apache-2.0
// What a request is answered with, in the form of its API.
#pragma once

#include <dsv4/dsv4.hpp>

#include <string>
#include <vector>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/identity.h"
#include "examples/dsv4-server/json.h"

namespace server {

// One candidate of an answer, which is one session.
struct Candidate {
  const Prompt* prompt;  // of the answer
  uint64_t seed;
};

// Takes the tokens of its candidates. Texts are server-sent events, for answers by chunks. `stats`
// are those of the first candidate: what is said about the prompt.
class Answer {
 public:
  virtual ~Answer() = default;

  virtual std::vector<Candidate> candidates() const = 0;
  virtual bool stream() const = 0;
  // Before the first token.
  virtual std::string Begin(const dsv4::SessionStats& stats) = 0;
  virtual std::string Take(size_t candidate, const Token& token,
                           const dsv4::SessionStats& stats) = 0;
  // The candidate has ended, with its last token or before the model's own end.
  virtual bool ended(size_t candidate) const = 0;
  // After all candidates have ended.
  virtual std::string End(const dsv4::SessionStats& stats) = 0;
  // In the place of all that would follow.
  virtual std::string Failure(const ApiError& error) = 0;
  // All that was taken, as one answer.
  virtual Json Whole(const dsv4::SessionStats& stats) = 0;
};

}  // namespace server
