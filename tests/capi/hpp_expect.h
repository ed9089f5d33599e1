// SPDX-License-Identifier: Apache-2.0
// What the tests of the C++ headers share: the bundled model, and checks of what calls throw.
#pragma once

#include <dsv4/dsv4.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.h"

// The call throws a dsv4::Error with this code and a message that contains `text`.
#define REQUIRE_ERROR(call, expected_code, text)                           \
  do {                                                                     \
    bool thrown_ = false;                                                  \
    try {                                                                  \
      static_cast<void>(call);                                             \
    } catch (const dsv4::Error& error_) {                                  \
      thrown_ = true;                                                      \
      INFO(#call ": " << error_.name() << ": " << error_.what());          \
      REQUIRE(error_.code() == (expected_code));                           \
      REQUIRE(std::string(error_.what()).find(text) != std::string::npos); \
    }                                                                      \
    INFO(#call);                                                           \
    REQUIRE(thrown_);                                                      \
  } while (false)

inline const std::string kModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";
// Of models/dsv4-tiny/gates.json.
inline const char kQuestion[] = "What is the capital of France?";
inline const char kAnswer[] = "The capital of France is Paris.";

// With room for short conversations.
inline dsv4::Engine OpenBundled(dsv4::EngineOptions options = {}) {
  if (options.context_tokens == 0) options.context_tokens = 512;
  return dsv4::Engine(kModel, options);
}

inline std::vector<int32_t> PromptOf(const dsv4::Engine& engine, const std::string& question) {
  return dsv4::RenderChat(engine.tokenizer(),
                          "[{\"role\": \"user\", \"content\": \"" + question + "\"}]");
}

// The rest of the answer.
inline std::string Generate(dsv4::Session& session) {
  std::string text;
  dsv4::StepResult step;
  while (step.finish == DSV4_FINISH_NONE) {
    step = session.Step();
    text += step.text;
  }
  return text;
}

// What callbacks of the tests throw: nothing that the library or the headers know.
struct Surprise {
  int number;
};
