// SPDX-License-Identifier: Apache-2.0
// GGUF files on the cuda backend: formats mixed as files have them give nearly the reference's
// logits; how many rows are computed at once and where experts lie changes no bit.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/engine/engine.h"
#include "lib/session/session.h"
#include "tests/support/bundled_model.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_model.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::GgufModelImage;
using test::TempFolder;

constexpr int kTokens = 40;

EngineOptions OnCuda(const ExpertBudgets& budgets = {}) {
  return test::OnTestedBackend(
      {.context_tokens = 512, .max_sessions = 2, .weight_budgets = budgets});
}

// The logits after kTokens tokens, computed `at_once`.
std::vector<float> Logits(const std::string& path, const EngineOptions& options,
                          int64_t at_once = kTokens) {
  const auto engine = Engine::Open(path, options);
  REQUIRE_OK(engine);
  const auto session = Session::Open(*engine, {});
  REQUIRE_OK(session);
  std::vector<int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back((i * i + 3 * i) % test::kGgufVocab);
  REQUIRE_OK((*session)->Sync(tokens));
  for (int64_t left = kTokens; left > 0;) {
    const auto pending = (*session)->Prefill(at_once, {});
    REQUIRE_OK(pending);
    left = *pending;
  }
  return {(*session)->logits().begin(), (*session)->logits().end()};
}

TEST_CASE("formats mixed as files have them run on the cuda backend") {
  const TempFolder folder;
  const std::function<BlockType(const std::string&)> mixes[] = {
      // As antirez/ds4 writes them.
      [](const std::string& name) {
        if (name.find("_exps") == std::string::npos) return BlockType::kQ8_0;
        return name.find("down") != std::string::npos ? BlockType::kQ2K : BlockType::kIq2Xxs;
      },
      // Another type for each tensor, w1 and w3 of a layer included.
      [](const std::string& name) {
        size_t sum = 1;
        for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
        constexpr int kFirst = static_cast<int>(BlockType::kF32);
        constexpr int kTypes = static_cast<int>(BlockType::kCount) - kFirst;
        return static_cast<BlockType>(kFirst + static_cast<int>(sum % kTypes));
      }};
  for (const auto& mix : mixes) {
    const std::string file = folder.Write("model.gguf", GgufModelImage(mix));
    const std::vector<float> logits = Logits(file, OnCuda());
    EngineOptions reference;
    reference.backend = Backend::kReference;
    reference.step_limit.reset();
    reference.numerics = Numerics::kPublished;
    reference.context_tokens = 512;
    const std::vector<float> expected = Logits(file, reference);
    double error = 0, norm = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      error += (logits[i] - expected[i]) * (logits[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    // As on the CPU: int8 and bf16 activations in both; sums in another order.
    CHECK(std::sqrt(error / norm) < 0.03);
    CHECK(logits == Logits(file, OnCuda(), 1));   // the row rule
    CHECK(logits == Logits(file, OnCuda(), 17));  // few rows and many
    const EngineOptions least = OnCuda({.least = true});
    const auto plan = Engine::Plan(file, least);
    REQUIRE_OK(plan);
    REQUIRE(plan->info().residency.on_host > 0);
    CHECK(logits == Logits(file, least));
  }
}

}  // namespace
}  // namespace dsv4
