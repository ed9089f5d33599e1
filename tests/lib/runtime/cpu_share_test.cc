// SPDX-License-Identifier: Apache-2.0
// Experts that the CPU computes: what a step computes depends on their number alone.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/runtime/relative_l2.h"
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

constexpr int kShare = 5;  // of 16 experts

EngineOptions WithShare(ExpertBudgets budgets, int threads = 2, int64_t experts = kShare) {
  budgets.cpu_experts = experts;
  EngineOptions options = WithBudgets(budgets);
  options.threads = threads;
  return options;
}

// As few experts on the device as can be, one on the host and the others on disk.
ExpertBudgets AllTiers() {
  ExpertBudgets budgets{.cpu_experts = kShare, .least = true, .shuffle = 7};
  budgets.host_bytes = PlanOf(budgets).info.residency.host_bytes() - 1;
  const ResidencyPlan plan = PlanOf(budgets).info.residency;
  budgets.host_bytes = plan.stage_bytes + plan.cpu_bytes + plan.expert_bytes;
  return budgets;
}

// A prompt, then drafts, and a fork in company of the session that it was made of.
Outcome Run(const std::shared_ptr<Engine>& engine) {
  Outcome outcome;
  const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
  Step(*session, 2, &outcome);
  const absl::StatusOr<std::unique_ptr<Session>> fork = session->Fork();
  REQUIRE_OK(fork);
  Session* const both[] = {session.get(), fork->get()};
  absl::StatusOr<StepResult> steps[2];
  REQUIRE_OK(Session::StepAll(both, absl::MakeSpan(steps)));
  for (const absl::StatusOr<StepResult>& step : steps) {
    REQUIRE_OK(step);
    outcome.tokens.push_back(step->token);
  }
  outcome.logits.assign(session->logits().begin(), session->logits().end());
  return outcome;
}

// Does not launch.
class Omission : public LaunchRecorder {
 public:
  void Record(const KernelEntry&, const void*, const Cost&, absl::FunctionRef<void()>) override {}
};

double Distance(const std::vector<float>& expected, const std::vector<float>& actual) {
  RelativeL2 distance;
  distance.Add(actual, expected);
  return distance.distance();
}

TEST_CASE("the CPU's share of the experts gives the same bits wherever the others lie") {
  const std::shared_ptr<Engine> engine = OpenLoud(WithShare({}));
  const ResidencyPlan& plan = engine->info().residency;
  REQUIRE(plan.on_cpu() == plan.blocks * kShare);
  REQUIRE(plan.on_device == plan.placed());
  REQUIRE(engine->info().threads == 2);
  const Outcome expected = Run(engine);
  const ExpertTraffic traffic = engine->expert_traffic();
  REQUIRE(traffic.cpu_reads > 0);
  REQUIRE(traffic.cpu_seconds > 0);
  REQUIRE(traffic.host_reads == 0);
  const std::shared_ptr<Engine> tiers = OpenLoud(WithShare(AllTiers(), 1));
  REQUIRE(tiers->info().residency.on_host == 1);
  REQUIRE(tiers->info().residency.on_disk > 0);
  REQUIRE(Run(tiers) == expected);
  REQUIRE(tiers->expert_traffic().disk_reads > 0);
  REQUIRE(tiers->expert_traffic().cpu_reads == traffic.cpu_reads);
}

TEST_CASE("experts that the CPU computes are summed with the device's") {
  const std::vector<int32_t> prompt = AnyTokens(4, 3);
  const std::vector<float> whole = test::LogitsAfter(OpenLoud(WithShare({}, 0, 0)), prompt);
  const std::shared_ptr<Engine> engine = OpenLoud(WithShare({}));
  const std::vector<float> shared = test::LogitsAfter(engine, prompt);
  Omission omission;
  engine->cpu_dispatch()->set_recorder(&omission);
  const std::vector<float> omitted = test::LogitsAfter(engine, prompt);
  REQUIRE(Distance(whole, shared) < 0.005);
  REQUIRE(Distance(whole, omitted) > 0.02);
}

TEST_CASE("a long prompt that streams experts beside others on disk has the CPU's share alike") {
  const std::vector<int32_t> prompt = AnyTokens(68, 4);
  EngineOptions options = WithShare({});
  options.max_sessions = 1;
  const std::vector<float> expected = test::LogitsAfter(OpenLoud(options), prompt);
  // A chunk that streams experts and one that does not.
  const int64_t all = PlanOf({.cpu_experts = kShare}).info.fullest().weights;
  const int64_t least = PlanOf({.cpu_experts = kShare, .least = true}).info.fullest().weights;
  ExpertBudgets budgets{.device_bytes = (least + all) / 2, .cpu_experts = kShare, .shuffle = 3};
  budgets.host_bytes = PlanOf(budgets).info.residency.host_bytes() * 7 / 8;
  EngineOptions streams = WithShare(budgets);
  streams.max_sessions = 1;
  streams.prefill_chunk_tokens = 66;
  const std::shared_ptr<Engine> some = OpenLoud(streams);
  REQUIRE(some->info().residency.streams > 0);
  REQUIRE(some->info().residency.on_disk > 0);
  REQUIRE(test::LogitsAfter(some, prompt) == expected);
  REQUIRE(some->expert_traffic().streamed_bytes > 0);
}

TEST_CASE("a session that was saved with another share of the CPU is refused") {
  const std::shared_ptr<Engine> engine = OpenLoud(WithShare({}));
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(2, 5)));
  Outcome saved_to, loaded_to;
  Step(*session, 1, &saved_to);
  std::vector<uint8_t> image(static_cast<size_t>(session->SaveBytes()));
  REQUIRE_OK(session->SaveTo(absl::MakeSpan(image)));
  Step(*session, 1, &saved_to);
  for (const int64_t experts : {0, kShare - 1}) {
    const absl::Status refused =
        OpenColdSession(OpenLoud(WithShare({}, 2, experts)))->Load(image, "image");
    REQUIRE(refused.code() == VersionMismatch().code());
    REQUIRE_THAT(std::string(refused.message()), Catch::Contains("cpu_experts"));
  }
  // After the engine was suspended, and had the experts read again.
  REQUIRE_OK(engine->Suspend(""));
  REQUIRE_OK(engine->Resume({}));
  const std::unique_ptr<Session> loaded = OpenColdSession(engine);
  REQUIRE_OK(loaded->Load(image, "image"));
  Step(*loaded, 1, &loaded_to);
  REQUIRE(loaded_to.tokens.back() == saved_to.tokens.back());
  REQUIRE(std::equal(loaded->logits().begin(), loaded->logits().end(), session->logits().begin(),
                     session->logits().end()));
}

TEST_CASE("a plan counts the CPU's experts as host memory, and refuses what it cannot share") {
  const EngineInfo all = PlanOf({}).info;
  const EngineInfo info = PlanOf({.cpu_experts = kShare}).info;
  const ResidencyPlan& plan = info.residency;
  REQUIRE(plan.on_device == plan.placed());
  // Two numbers a byte, and a scale for 32 of them: w1, w3 and w2 have 128 x 256.
  constexpr int64_t kExpertBytes = 3 * (128 * 256 / 2 + 128 * 256 / 32);
  REQUIRE(plan.cpu_bytes == plan.on_cpu() * kExpertBytes);
  REQUIRE(plan.host_bytes() == plan.cpu_bytes);
  REQUIRE(info.weight_bytes == all.weight_bytes - plan.on_cpu() * plan.expert_bytes);
  const auto refused = [](const EngineOptions& options) {
    const absl::Status status = Engine::Plan(LoudModel(), options).status();
    REQUIRE(Engine::Open(LoudModel(), options).status() == status);
    return status;
  };
  const auto says = [](const absl::Status& status, const std::string& text) {
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(text));
  };
  for (const int64_t experts : {-1, 16}) {
    const absl::Status status = refused(WithShare({}, 2, experts));
    REQUIRE(absl::IsInvalidArgument(status));
    says(status, "option cpu_experts = " + std::to_string(experts) + " is not in 0..15");
  }
  const absl::Status little = refused(WithShare({.host_bytes = plan.cpu_bytes - 1}));
  REQUIRE(absl::IsInvalidArgument(little));
  says(little, "option host_weight_bytes = " + std::to_string(plan.cpu_bytes - 1));
  says(little, "at least " + std::to_string(plan.cpu_bytes));
  REQUIRE(PlanOf({.host_bytes = plan.cpu_bytes, .cpu_experts = kShare}).info.residency.on_device ==
          plan.placed());
  EngineOptions two = WithShare({});
  two.group.ranks = 2;
  says(refused(two), "option cpu_experts = 5 with 2 devices");
  EngineOptions cpu = WithShare({});
  cpu.backend = Backend::kReference;
  const absl::Status none = refused(cpu);
  REQUIRE(IsUnsupported(none));
  says(none, "option cpu_experts = 5: backend reference computes all experts on the CPU");
}

}  // namespace
}  // namespace dsv4
