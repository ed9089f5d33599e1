// SPDX-License-Identifier: Apache-2.0
// Any bytes as the body of a request to dsv4-server: read, and its session opened, as far as
// nothing is computed. What is refused is the client's fault, never the server's. The input is a
// letter that chooses the endpoint, then the body. A capital letter: with strict fields.
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

namespace {

using server::Json;
using server::Model;
using server::Prompt;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

const dsv4::Engine& Engine() {
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

void Open(const Prompt& prompt) {
  server::Generation(Engine(), prompt, prompt.sampling.seed, std::chrono::steady_clock::now(), {});
}

void Answer(const Model& model, char endpoint, const Json& body) {
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static server::ResponseStore* const responses = [] {
    auto* const store = new server::ResponseStore();
    store->Put("resp_1", {"{}", "{}", R"([{"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}])"});
    return store;
  }();
  const char letter = static_cast<char>(data[0]);
  const bool strict = letter >= 'A' && letter <= 'Z';
  const Model model{Engine(), "dsv4-tiny",       DSV4_THINKING_OFF, DSV4_CHAT_ENCODER_AUTO, 0, {},
                    false,    {strict, nullptr}, responses};
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    Answer(model, strict ? static_cast<char>(letter | 0x20) : letter, server::ParseObject(body));
  } catch (...) {
    const server::ApiError error = server::CurrentApiError();
    Require(error.status != 500);
    Require(Json::accept(server::TextOf(server::JsonOf(error))));
    Require(Json::accept(server::TextOf(server::AnthropicJsonOf(error))));
  }
  return 0;
}
