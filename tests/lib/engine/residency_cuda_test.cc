// SPDX-License-Identifier: Apache-2.0
// Where experts lie changes nothing, and no more memory is taken than planned.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/residency.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::LoudModel;
using test::OpenColdSession;
using test::OpenLoud;
using test::Outcome;
using test::PlanOf;
using test::WithBudgets;

// A prompt in two chunks, a fork of it with drafts, and a sampled session.
Outcome Run(const std::shared_ptr<Engine>& engine) {
  Outcome outcome;
  const std::unique_ptr<Session> greedy = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE_OK(greedy->Sync(AnyTokens(11, 1)));
  Step(*greedy, 2, &outcome);
  const absl::StatusOr<std::unique_ptr<Session>> fork = greedy->Fork();
  REQUIRE_OK(fork);
  const std::unique_ptr<Session> sampled = OpenColdSession(engine, {.temperature = 1, .seed = 5});
  REQUIRE_OK(sampled->Sync(AnyTokens(2, 2)));
  Step(*sampled, 1, &outcome);
  Step(**fork, 2, &outcome);
  Step(*greedy, 1, &outcome);
  outcome.logits = test::LogitsAfter(engine, AnyTokens(4, 3));
  return outcome;
}

TEST_CASE("the experts of the model of these tests decide its logits") {
  const std::vector<int32_t> prompt = AnyTokens(4, 3);
  const std::vector<float> logits = test::LogitsAfter(OpenLoud(WithBudgets({})), prompt);
  const test::TempFolder folder;
  test::WriteLoudModel(folder, 1);
  const std::vector<float> of_others =
      test::LogitsAfter(test::OpenBundled(WithBudgets({}), folder.path()), prompt);
  size_t equal = 0;
  for (size_t i = 0; i < logits.size(); ++i) equal += logits[i] == of_others[i];
  REQUIRE(equal < logits.size() / 10);
}

TEST_CASE("where experts lie changes no token and no logit, nor that they move between steps",
          "[budgets]") {
  const std::shared_ptr<Engine> whole = OpenLoud(WithBudgets({}));
  REQUIRE(whole->info().residency.on_host == 0);
  const Outcome expected = Run(whole);
  const int64_t all = whole->info().fullest().weights;
  const int64_t least = PlanOf({.least = true}).info().fullest().weights;
  const int64_t bytes = least + (all - least) / 3;
  const std::shared_ptr<Engine> some = OpenLoud(WithBudgets({.device_bytes = bytes}));
  REQUIRE(some->info().fullest().weights <= bytes);
  REQUIRE(some->info().residency.on_host > 0);
  REQUIRE(Run(some) == expected);
  const std::shared_ptr<Engine> moving = OpenLoud(WithBudgets({.least = true, .shuffle = 11}));
  REQUIRE(Run(moving) == expected);
  const ExpertTraffic traffic = moving->expert_traffic();
  REQUIRE(traffic.moved > 0);
  REQUIRE(traffic.host_reads > 0);
  REQUIRE(traffic.device_reads > 0);
  REQUIRE(traffic.host_seconds > 0);
  REQUIRE(traffic.device_seconds > 0);
  REQUIRE(whole->expert_traffic().device_seconds == 0);
}

TEST_CASE("an engine that was suspended has its experts back, and its sessions the same bits") {
  const auto run = [](Engine* suspended, Session& session) {
    Outcome outcome;
    REQUIRE_OK(session.Sync(AnyTokens(11, 1)));
    Step(session, 1, &outcome);
    if (suspended != nullptr) {
      const int64_t total = suspended->info().fullest().total();
      const int64_t free_bytes = *suspended->device().FreeBytes();
      REQUIRE_OK(suspended->Suspend(""));
      REQUIRE(*suspended->device().FreeBytes() >= free_bytes + total);
      REQUIRE_OK(suspended->Resume({}));
    }
    Step(session, 2, &outcome);
    outcome.logits.assign(session.logits().begin(), session.logits().end());
    return outcome;
  };
  const std::shared_ptr<Engine> engine = OpenLoud(WithBudgets({.least = true}));
  const std::unique_ptr<Session> straight = OpenColdSession(engine, {.draft_tokens = 2});
  const Outcome expected = run(nullptr, *straight);
  const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE(run(engine.get(), *session) == expected);
}

// For prompts that stream experts.
EngineOptions WithLongChunks(const ExpertBudgets& budgets) {
  EngineOptions options = WithBudgets(budgets);
  options.prefill_chunk_tokens = 66;  // more rows than steps that are recorded have
  options.max_sessions = 1;
  return options;
}

// A chunk that streams experts. Its last row's logits are looked at: experts of rows before decide
// next to nothing of those after.
const std::vector<int32_t> kLongPrompt = AnyTokens(66, 4);

ExpertBudgets HalfOfThem() {
  const int64_t all = PlanOf({}).info().fullest().weights;
  const int64_t least = PlanOf({.least = true}).info().fullest().weights;
  return {.device_bytes = (least + all) / 2, .shuffle = 3};
}

TEST_CASE("experts that are streamed for a long prompt give the same bits", "[budgets]") {
  const std::vector<float> expected = test::LogitsAfter(OpenLoud(WithLongChunks({})), kLongPrompt);
  const std::shared_ptr<Engine> some = OpenLoud(WithLongChunks(HalfOfThem()));
  const ResidencyPlan& plan = some->info().residency;
  REQUIRE(test::LogitsAfter(some, kLongPrompt) == expected);
  REQUIRE(plan.streams > 0);
  REQUIRE(plan.streams % 2 == 0);
  // The main layers' experts on the host once each, and the drafter's if it computed.
  int64_t of_layers = 0;
  for (int64_t layer = 0; layer + 1 < plan.blocks; ++layer) {
    of_layers += plan.experts - plan.OnDevice(layer);
  }
  const ExpertTraffic traffic = some->expert_traffic();
  REQUIRE(traffic.streamed_bytes >= of_layers * plan.expert_bytes);
  REQUIRE(traffic.streamed_bytes <= plan.on_host * plan.expert_bytes);
  REQUIRE(traffic.stream_seconds > 0);
}

TEST_CASE("streamed experts give the same bits while others are on disk", "[budgets]") {
  // No step is recorded, so that shorter chunks stream.
  constexpr int kRows = 20;
  const auto open = [](const ExpertBudgets& budgets) {
    EngineOptions options = WithLongChunks(budgets);
    options.prefill_chunk_tokens = kRows;
    return OpenLoud(options);
  };
  const std::vector<int32_t> prompt = AnyTokens(kRows, 4);
  const std::vector<float> expected = test::LogitsAfter(open({}), prompt);
  ExpertBudgets budgets = HalfOfThem();
  budgets.host_bytes = PlanOf(budgets).info().residency.host_bytes() * 3 / 4;
  const std::shared_ptr<Engine> tiers = open(budgets);
  const ResidencyPlan& plan = tiers->info().residency;
  REQUIRE(plan.on_host > 0);
  REQUIRE(plan.on_disk > 0);
  REQUIRE(plan.streams > 0);
  REQUIRE(test::LogitsAfter(tiers, prompt) == expected);
  REQUIRE(tiers->expert_traffic().streamed_bytes > 0);
  REQUIRE(tiers->expert_traffic().disk_reads > 0);
}

TEST_CASE("budgets of weights are planned, and the least that would do is told", "[budgets]") {
  const ResidencyPlan all = PlanOf({}).info().residency;
  REQUIRE(all.on_host == 0);
  const EnginePlan least = PlanOf({.least = true});
  const ResidencyPlan& plan = least.info().residency;
  REQUIRE(plan.all() == all.all());
  REQUIRE(plan.on_device + plan.on_host == plan.all());
  REQUIRE(plan.on_device == plan.blocks);
  REQUIRE(plan.spare > 0);
  int64_t placed = 0;
  for (int64_t block = 0; block < plan.blocks; ++block) {
    REQUIRE(plan.OnDevice(block) == 1);
    placed += plan.OnDevice(block);
  }
  REQUIRE(placed == plan.on_device);
  REQUIRE(least.info().token_expert_bytes == least.config().num_hidden_layers *
                                                 least.config().num_experts_per_tok *
                                                 plan.expert_bytes);
  const int64_t bytes = least.info().fullest().weights;
  const int64_t most = PlanOf({}).info().fullest().weights;
  REQUIRE(PlanOf({.device_bytes = most}).info().residency.on_host == 0);
  REQUIRE(PlanOf({.device_bytes = most - 1}).info().residency.on_host >= 1);
  const auto refused = [](const ExpertBudgets& budgets, int64_t least_bytes) {
    const absl::Status status = Engine::Plan(LoudModel(), WithBudgets(budgets)).status();
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE_THAT(std::string(status.message()),
                 Catch::Contains("at least " + std::to_string(least_bytes)));
  };
  refused({.device_bytes = bytes - 1}, bytes);
  refused({.device_bytes = 1}, bytes);
  REQUIRE(
      PlanOf({.device_bytes = bytes, .host_bytes = plan.host_bytes()}).info().residency.on_host ==
      plan.on_host);
  // Where all weights fit the device, there is nothing in host memory to limit.
  REQUIRE(PlanOf({.host_bytes = 1}).info().residency.on_host == 0);
}

}  // namespace
}  // namespace dsv4
