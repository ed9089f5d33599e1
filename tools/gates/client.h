// SPDX-License-Identifier: Apache-2.0
// A client of a server with OpenAI's API. All functions may be called by several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/gates/options.h"

namespace gates {

using Json = nlohmann::ordered_json;

// Thrown if there is no server, or it lacks endpoints that the gates need.
struct ServerError {
  std::string message;  // names the endpoint
};

// Seconds since the program began.
double Now();

struct Arrival {
  double seconds;  // as Now()
  int64_t tokens;  // received so far
};

struct Answer {
  std::string error;  // empty: answered
  std::string text, finish;
  int64_t prompt_tokens = -1, completion_tokens = -1, cached_tokens = -1;  // -1: not said
  double begin = 0;               // when the request was sent
  std::vector<Arrival> arrivals;  // one for each chunk

  int64_t tokens() const { return arrivals.empty() ? 0 : arrivals.back().tokens; }
  // The time of the first token; infinite if the answer ended without one.
  double first() const;
  // Tokens that came from `begin` to `end`.
  int64_t TokensBetween(double begin_seconds, double end_seconds) const;
};

class Client {
 public:
  // Asks the server for its model. `options` must outlive this. Throws a ServerError.
  explicit Client(const Options& options);

  const std::string& model() const { return model_; }
  // Of the longest conversation.
  size_t context_tokens() const { return context_tokens_; }

  // Without special tokens. Throws a ServerError.
  std::vector<int32_t> Tokenize(const std::string& text) const;
  // The prompt of a chat with one message. Throws a ServerError.
  std::vector<int32_t> TokenizeChat(const std::string& message) const;

  // Sends a request to `path` and streams the answer. Adds the model and the stream options to the
  // request. `on_chunk` receives the answer after each chunk; false abandons the request without an
  // error.
  Answer Stream(const std::string& path, Json request,
                const std::function<bool(const Answer&)>& on_chunk = {}) const;

 private:
  Json Call(const std::string& path, const Json* body) const;

  const Options& options_;
  std::string model_;
  size_t context_tokens_ = 0;
};

}  // namespace gates
