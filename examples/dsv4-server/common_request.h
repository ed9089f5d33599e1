// SPDX-License-Identifier: Apache-2.0
// The fields that several APIs share.
#pragma once

#include <dsv4/dsv4.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/fields.h"

namespace server {

class ResponseStore;

// The model that is served.
struct Model {
  const dsv4::Engine& engine;
  std::string name;
  dsv4_thinking_mode thinking;  // of requests that do not specify it
  dsv4_chat_encoder encoder;
  int64_t opened;                         // seconds since 1970
  std::vector<std::string> aliases = {};  // further names that clients may ask for
  bool any_name = false;                  // or any name
  FieldRules rules = {};
  ResponseStore* responses = nullptr;  // null: none are kept
  bool quick_grammars = false;         // grammars that take long to compile are a SlowGrammar
};

// Thrown where a request must be read by a thread that nobody waits for.
struct SlowGrammar {};

struct CommonRequest {
  dsv4::Sampling sampling;
  uint64_t cache_salt = 0;
  bool stream = false;
  bool include_usage = false;     // a chunk with the usage at the end of a stream
  bool continuous_usage = false;  // and the usage so far in each chunk
  size_t count = 1;               // candidates
  bool token_ids = false;         // of choices go into the answer
};

// Reads the fields that all APIs have: model, sampling, stream. Throws an ApiError.
CommonRequest ReadCommon(const Model& model, Fields* fields);
// Reads the fields of chats and completions: n, stream_options, return_token_ids.
void ReadCandidates(const Model& model, Fields* fields, CommonRequest* request);

// Throws an ApiError with status 404 if the field `model` names another model.
void CheckModel(const Model& model, Fields* fields);
// Whether the model is served by this name, and the error if it is not.
bool IsServed(const Model& model, const std::string& name);
ApiError NotServed(const Model& model, const std::string& name);

// The usage of an answer in OpenAI's chats and completions; `reasoning_tokens` of
// `completion_tokens`.
Json UsageOf(const dsv4::SessionStats& stats, int64_t completion_tokens, int64_t reasoning_tokens);

// A random seed from the system.
uint64_t RandomNumber();

int64_t SecondsSince1970();

// A log-probability as a JSON number; JSON has no infinity.
double JsonLogProb(float log_prob);

const char* FinishReason(dsv4_finish finish);

// The last event of streams of OpenAI's chats and completions.
inline constexpr char kStreamEnd[] = "data: [DONE]\n\n";

// "data: JSON" as a server-sent event; of the type `name`, unless that is "".
std::string EventText(const Json& json, const std::string& name = {});

}  // namespace server
