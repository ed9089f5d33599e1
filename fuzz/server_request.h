// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request to dsv4-server: read, and its session opened, as far as
// nothing is computed. What is refused is the client's fault, never the server's.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat_request.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/error_json.h"
#include "examples/dsv4-server/generation.h"
#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/messages_request.h"
#include "examples/dsv4-server/response_store.h"
#include "examples/dsv4-server/responses_request.h"
#include "examples/dsv4-server/tokenize.h"

namespace fuzz {

using server::Json;
using server::Model;
using server::Prompt;

inline void Require(bool holds) {
  if (!holds) __builtin_trap();
}

inline const dsv4::Engine& Engine() {
  static const dsv4::Engine engine = [] {
    dsv4::EngineOptions options;
    options.backend = DSV4_BACKEND_CPU;
    options.threads = 1;
    options.context_tokens = 2048;
    options.max_sessions = 1;
    return dsv4::Engine(DSV4_SOURCE_DIR "/models/dsv4-tiny", options);
  }();
  return engine;
}

inline void Open(const Prompt& prompt) {
  static dsv4::KeptConversations none(0);
  server::Generation(Engine(), prompt, prompt.sampling.seed, std::chrono::steady_clock::now(), {},
                     &none);
}

// `endpoint`: c, p, r, m, n, t, or another character for /detokenize.
inline void Answer(const Model& model, char endpoint, const Json& body) {
  switch (endpoint) {
    case 'c':
      return Open(server::ReadChat(model, body).prompt);
    case 'p':
      for (const auto& entry : server::ReadCompletion(model, body).prompts) Open(entry.prompt);
      return;
    case 'r':
      return Open(server::ReadResponses(model, body).prompt);
    case 'm':
      return Open(server::ReadMessagesApi(model, body).prompt);
    case 'n':
      server::CountTokens(model, body);
      return;
    case 't':
      // What is answered is JSON.
      Require(Json::accept(server::Tokenize(model, body)));
      return;
    default:
      Require(Json::accept(server::TextOf(server::Detokenize(model, body))));
  }
}

inline void Send(char endpoint, bool strict_fields, const std::string& body) {
  static server::ResponseStore* const responses = [] {
    auto* const store = new server::ResponseStore();
    store->Put("resp_1", {"{}", "{}", R"([{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}])"});
    return store;
  }();
  const Model model{Engine(),
                    "dsv4-tiny",
                    DSV4_THINKING_OFF,
                    DSV4_CHAT_ENCODER_AUTO,
                    0,
                    {},
                    false,
                    {strict_fields, nullptr},
                    responses};
  try {
    Answer(model, endpoint, server::ParseObject(body));
  } catch (...) {
    const server::ApiError error = server::CurrentApiError();
    Require(error.status != 500);
    Require(Json::accept(server::TextOf(server::JsonOf(error))));
    Require(Json::accept(server::TextOf(server::AnthropicJsonOf(error))));
  }
}

// For a target of one endpoint. The first byte of the input is S for strict fields.
inline void SendTo(char endpoint, const uint8_t* data, size_t size) {
  if (size == 0) return;
  Send(endpoint, data[0] == 'S', {reinterpret_cast<const char*>(data) + 1, size - 1});
}

}  // namespace fuzz
