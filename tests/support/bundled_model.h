// SPDX-License-Identifier: Apache-2.0
// The bundled model for tests of the runtime: opened engines, and prompts of any length.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/engine/engine.h"
#include "lib/session/session.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

inline const std::string kBundledModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";
// The same with a DSpark drafter in place of the MTP block.
inline const std::string kBundledDspark = DSV4_BUILT_MODELS "/dsv4-tiny-dspark";

// The options in place of `options` in executables that run the tests of the cpu backend on another
// backend.
__attribute__((weak)) EngineOptions OnTestedBackend(const EngineOptions& options);

inline EngineOptions Tested(const EngineOptions& options) {
  return OnTestedBackend == nullptr ? options : OnTestedBackend(options);
}

// The model in place of `folder`, and its drafter, in executables that run the tests on models of
// another format.
__attribute__((weak)) std::string OnTestedFormat(const std::string& folder, EngineOptions* options);

inline std::string TestedModel(const std::string& folder, EngineOptions* options) {
  return OnTestedFormat == nullptr ? folder : OnTestedFormat(folder, options);
}

inline std::shared_ptr<Engine> OpenBundled(const EngineOptions& options,
                                           const std::string& folder = kBundledModel) {
  EngineOptions tested = Tested(options);
  const std::string model = TestedModel(folder, &tested);
  absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(model, tested);
  REQUIRE_OK(engine);
  return *std::move(engine);
}

// The plan of OpenBundled's engine.
inline absl::StatusOr<EnginePlan> PlanBundled(const EngineOptions& options) {
  EngineOptions tested = Tested(options);
  const std::string model = TestedModel(kBundledModel, &tested);
  return Engine::Plan(model, tested);
}

inline std::unique_ptr<Session> OpenSession(std::shared_ptr<Engine> engine,
                                            const SamplingParams& sampling = {}) {
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(std::move(engine), sampling);
  REQUIRE_OK(session);
  return *std::move(session);
}

// `count` token ids that look like nothing in particular, different for each seed.
inline std::vector<int32_t> AnyTokens(int64_t count, uint32_t seed) {
  std::vector<int32_t> tokens;
  uint32_t state = seed * 2654435761u + 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>(3 + (state >> 8) % 2000));
  }
  return tokens;
}

// A session that shares no prefix with any other: it computes all that it is asked for.
inline std::unique_ptr<Session> OpenColdSession(std::shared_ptr<Engine> engine,
                                                const SamplingParams& sampling = {}) {
  static std::atomic<uint64_t> salt{1000};
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Open(std::move(engine), sampling, ++salt);
  REQUIRE_OK(session);
  return *std::move(session);
}

// Logits after the last of `tokens`, prefilled in one go.
inline std::vector<float> LogitsAfter(const std::shared_ptr<Engine>& engine,
                                      const std::vector<int32_t>& tokens) {
  std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(tokens));
  REQUIRE_OK(session->Prefill(0, nullptr));
  const absl::Span<const float> logits = session->logits();
  return {logits.begin(), logits.end()};
}

// The logits of a prompt of several chunks and of steps after it.
inline std::vector<float> LogitsOfSteps(const std::shared_ptr<Engine>& engine) {
  const std::unique_ptr<Session> session = OpenSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(600, 5)));
  std::vector<float> all(session->logits().begin(), session->logits().end());
  for (int i = 0; i < 8; ++i) {
    REQUIRE_OK(session->Step());
    all.insert(all.end(), session->logits().begin(), session->logits().end());
  }
  return all;
}

}  // namespace dsv4::test
