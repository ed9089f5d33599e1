// SPDX-License-Identifier: Apache-2.0
// The answer to a request, in the form of its API.
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

// Receives the tokens of its candidates. Strings that functions return are server-sent events, for
// streams. `stats`: of the first candidate, for the numbers about the prompt.
class Answer {
 public:
  virtual ~Answer() = default;

  virtual std::vector<Candidate> candidates() const = 0;
  virtual bool stream() const = 0;
  // Called before the first token.
  virtual std::string Begin(const dsv4::SessionStats& stats) = 0;
  virtual std::string Take(size_t candidate, const Token& token,
                           const dsv4::SessionStats& stats) = 0;
  // Whether the candidate has ended, by its last token or by the server.
  virtual bool ended(size_t candidate) const = 0;
  // Called after all candidates have ended.
  virtual std::string End(const dsv4::SessionStats& stats) = 0;
  // Replaces all further events.
  virtual std::string Failure(const ApiError& error) = 0;
  // The whole answer, without a stream.
  virtual Json Whole(const dsv4::SessionStats& stats) = 0;
};

}  // namespace server
