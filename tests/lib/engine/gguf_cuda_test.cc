// SPDX-License-Identifier: Apache-2.0
// GGUF files on the cuda backend: formats mixed as files have them give nearly the reference's
// logits; how many rows are computed at once and where experts lie changes no bit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/engine/engine.h"
#include "lib/io/gguf.h"
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
std::vector<float> LogitsOf(const std::shared_ptr<Engine>& engine, int64_t at_once) {
  const auto session = Session::Open(engine, {});
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

std::vector<float> Logits(const std::string& path, const EngineOptions& options,
                          int64_t at_once = kTokens) {
  const auto engine = Engine::Open(path, options);
  REQUIRE_OK(engine);
  return LogitsOf(*engine, at_once);
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

// Runs the tokens on an engine of its own, and returns what became of its experts.
ExpertTraffic ExpectLogits(const std::string& path, const EngineOptions& options, int64_t at_once,
                           const std::vector<float>& expected) {
  const auto engine = Engine::Open(path, options);
  REQUIRE_OK(engine);
  CHECK(LogitsOf(*engine, at_once) == expected);
  return (*engine)->expert_traffic();
}

// Gives each expert the weights of the next one.
void TurnExperts(int experts, std::string* image) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(image->data());
  const auto parsed = ParseGguf({begin, image->size()}, "model");
  REQUIRE_OK(parsed);
  for (const GgufTensor& tensor : parsed->tensors) {
    if (tensor.name.find("_exps") == std::string::npos) continue;
    const auto first = image->begin() + (tensor.data - begin);
    std::rotate(first, first + tensor.bytes / experts, first + tensor.bytes);
  }
}

TEST_CASE("experts of three sizes give the same bits on the device, on the host and on disk") {
  // Each layer has experts of its own size. Unsloth's files have two or three such layers.
  const auto mix = [](const std::string& name) {
    if (name.find("_exps") == std::string::npos) return BlockType::kQ8_0;
    const bool down = name.find("down") != std::string::npos;
    if (name.find("blk.0.") == 0) return down ? BlockType::kIq3Xxs : BlockType::kIq2Xxs;
    if (name.find("blk.1.") == 0) return down ? BlockType::kQ2K : BlockType::kIq2Xxs;
    return down ? BlockType::kQ8_0 : BlockType::kIq4Xs;
  };
  constexpr int kExperts = 16;
  const TempFolder folder;
  std::string image = GgufModelImage(mix, /*widened=*/false, kExperts);
  const std::string file = folder.Write("model.gguf", image);
  const auto plan_of = [&](const ExpertBudgets& budgets) {
    const auto plan = Engine::Plan(file, OnCuda(budgets));
    REQUIRE_OK(plan);
    return plan->info();
  };
  const std::vector<float> expected = Logits(file, OnCuda());
  // Experts in the places of others would be seen.
  TurnExperts(kExperts, &image);
  const std::vector<float> of_others = Logits(folder.Write("turned.gguf", image), OnCuda());
  size_t equal = 0;
  for (size_t i = 0; i < expected.size(); ++i) equal += expected[i] == of_others[i];
  CHECK(equal < expected.size() / 10);
  const EngineInfo whole = plan_of({}), least = plan_of({.least = true});
  REQUIRE(whole.residency.IsWhole());
  REQUIRE(whole.residency.class_count() == 3);

  // Some on the host, which change places with others between steps.
  REQUIRE(least.residency.on_device == 3);
  REQUIRE(least.residency.on_host == 3 * kExperts - 3);
  const ExpertTraffic moving =
      ExpectLogits(file, OnCuda({.least = true, .shuffle = 5}), 3, expected);
  CHECK(moving.moved > 0);
  CHECK(moving.host_reads > 0);
  CHECK(moving.host_bytes > 0);

  // Streamed in long steps, which are not recorded.
  const ResidencyPlan& own = whole.residency;
  const int64_t others = whole.fullest().weights - own.device_bytes();
  EngineOptions streams =
      OnCuda({.device_bytes = others + own.device_bytes() * 7 / 8, .shuffle = 5});
  streams.graphs = false;
  const ResidencyPlan some = plan_of(streams.weight_budgets).residency;
  REQUIRE(some.device_bytes() <= own.device_bytes() * 7 / 8);
  REQUIRE(some.on_host > 0);
  REQUIRE(some.streams > 0);
  // A lane has room for several experts of a layer whose experts are small.
  REQUIRE(some.largest_bytes() > 2 * some.ExpertBytes(1));
  const ExpertTraffic streamed = ExpectLogits(file, streams, kTokens, expected);
  CHECK(streamed.streamed_bytes == some.host_expert_bytes());  // each of them once

  // As many as possible on disk: experts take each other's slots.
  ExpertBudgets budgets{.host_bytes = least.residency.host_bytes() - 1, .least = true};
  const int64_t stage = plan_of(budgets).residency.stage_bytes;
  budgets.host_bytes = stage;
  const ResidencyPlan none = plan_of(budgets).residency;
  REQUIRE(none.on_host == 0);
  REQUIRE(none.on_disk == 3 * kExperts - 3);
  REQUIRE(none.guests == 3 * kWaveExperts);
  const ExpertTraffic read = ExpectLogits(file, OnCuda(budgets), 17, expected);
  CHECK(read.disk_reads > none.on_disk);
  CHECK(read.prefetched > 0);
  CHECK(read.host_reads == 0);

  // On the device, on the host, and on disk.
  budgets = {.device_bytes = others + own.device_bytes() * 5 / 8,
             .host_bytes = stage + own.device_bytes() / 8,
             .shuffle = 5};
  const ResidencyPlan tiers = plan_of(budgets).residency;
  REQUIRE(tiers.on_device > 3);
  REQUIRE(tiers.on_host > 0);
  REQUIRE(tiers.on_disk > 0);
  REQUIRE(tiers.host_bytes() <= budgets.host_bytes);
  const ExpertTraffic all = ExpectLogits(file, OnCuda(budgets), 5, expected);
  CHECK(all.moved > 0);
  CHECK(all.device_reads > 0);
  CHECK(all.host_reads > 0);
  CHECK(all.disk_reads > 0);
}

}  // namespace
}  // namespace dsv4
