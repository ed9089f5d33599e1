// SPDX-License-Identifier: Apache-2.0
// Experts that the CPU computes: what a step computes depends on their number alone.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/proof/operator_compare.h"
#include "tests/support/residency.h"
#include "tests/support/watched_reads.h"

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

// Some experts in each memory and on disk.
ExpertBudgets AllTiers() {
  ExpertBudgets budgets = test::MostOnDisk(1, kShare);
  budgets.shuffle = 7;
  return budgets;
}

// A prompt, then drafts, and a fork in company of the session that it was made of.
Outcome Run(const std::shared_ptr<Engine>& engine) {
  Outcome outcome;
  const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
  Step(*session, 2, &outcome);
  StepWithFork(*session, &outcome);
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

// Throws at one of the launches.
class Failure : public LaunchRecorder {
 public:
  Failure(int launch, bool no_memory) : left_(launch), no_memory_(no_memory) {}
  void Record(const KernelEntry&, const void*, const Cost&,
              absl::FunctionRef<void()> launch) override {
    if (--left_ == 0) no_memory_ ? throw std::bad_alloc() : throw std::runtime_error("planted");
    launch();
  }

 private:
  int left_;
  const bool no_memory_;
};

TEST_CASE("a step whose part on the CPU fails is an error that loses no session") {
  const std::vector<int32_t> prompt = AnyTokens(5, 6);
  const auto run = [&](const ExpertBudgets& budgets, bool fails) {
    Outcome outcome;
    const std::shared_ptr<Engine> engine = OpenLoud(WithShare(budgets));
    const std::unique_ptr<Session> session = OpenColdSession(engine);
    REQUIRE_OK(session->Sync(prompt));
    // In the prompt, and in an answer; in the first layer that the CPU has a part in, and in
    // others.
    const auto fail = [&](int launch, bool no_memory, absl::StatusCode code) {
      if (!fails) return;
      Failure failure(launch, no_memory);
      engine->cpu_dispatch()->set_recorder(&failure);
      const absl::Status status = session->Step().status();
      engine->cpu_dispatch()->set_recorder(nullptr);
      REQUIRE(status.code() == code);
    };
    fail(2, true, absl::StatusCode::kResourceExhausted);
    Step(*session, 1, &outcome);
    fail(1, false, absl::StatusCode::kInternal);
    fail(1, true, absl::StatusCode::kResourceExhausted);
    StepWithFork(*session, &outcome);
    outcome.logits.assign(session->logits().begin(), session->logits().end());
    return outcome;
  };
  const Outcome expected = run({}, false);
  REQUIRE(run({}, true) == expected);
  REQUIRE(run(AllTiers(), true) == expected);
}

TEST_CASE("a read from disk that fails while the CPU computes fails the step alone") {
  ExpertBudgets budgets = AllTiers();
  budgets.plain_reads = true;
  const std::vector<int32_t> prompt = AnyTokens(5, 7);
  Outcome expected, outcome;
  const std::unique_ptr<Session> undisturbed = OpenColdSession(OpenLoud(WithShare({})));
  REQUIRE_OK(undisturbed->Sync(prompt));
  Step(*undisturbed, 3, &expected);
  const std::unique_ptr<Session> session = OpenColdSession(OpenLoud(WithShare(budgets)));
  REQUIRE_OK(session->Sync(prompt));
  for (const int reads : {0, 30}) {
    test::reads_before_failure = reads;
    const absl::Status failed = session->Step().status();
    test::reads_before_failure = test::kNoFailure;
    REQUIRE(IsIoError(failed));
    Step(*session, 1, &outcome);
  }
  Step(*session, 1, &outcome);
  REQUIRE(outcome == expected);
}

// Has the CPU wait with what it computes until a read from disk begins, as long as none did.
class UntilRead : public LaunchRecorder {
 public:
  void Record(const KernelEntry&, const void*, const Cost&,
              absl::FunctionRef<void()> launch) override {
    constexpr int kMostLooks = 1'000'000;  // where all experts of a layer are in slots
    const int before = test::reads_begun;
    for (int looks = 0; !came_ && looks < kMostLooks; ++looks) {
      came_ = test::reads_begun > before;
      std::this_thread::yield();
    }
    launch();
  }
  bool came() const { return came_; }

 private:
  bool came_ = false;
};

TEST_CASE("experts on disk are read while the CPU computes its own") {
  const std::vector<int32_t> prompt = AnyTokens(9, 8);
  ExpertBudgets budgets = AllTiers();
  budgets.plain_reads = true;
  const std::shared_ptr<Engine> engine = OpenLoud(WithShare(budgets));
  UntilRead until_read;
  engine->cpu_dispatch()->set_recorder(&until_read);
  const std::vector<float> logits = test::LogitsAfter(engine, prompt);
  engine->cpu_dispatch()->set_recorder(nullptr);
  REQUIRE(until_read.came());
  REQUIRE(logits == test::LogitsAfter(OpenLoud(WithShare({})), prompt));
}

TEST_CASE("the CPU's share is the same while a long prompt streams experts and reads others") {
  const std::vector<int32_t> prompt = AnyTokens(68, 4);
  EngineOptions options = WithShare({});
  options.max_sessions = 1;
  const std::vector<float> expected = test::LogitsAfter(OpenLoud(options), prompt);
  // A chunk that streams experts and one that does not.
  const int64_t all = PlanOf({.cpu_experts = kShare}).info().fullest().weights;
  const int64_t least = PlanOf({.cpu_experts = kShare, .least = true}).info().fullest().weights;
  ExpertBudgets budgets{.device_bytes = (least + all) / 2, .cpu_experts = kShare, .shuffle = 3};
  budgets.host_bytes = PlanOf(budgets).info().residency.host_bytes() * 7 / 8;
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
    REQUIRE(refused.message() ==
            "image: was saved with cpu_experts = 5; the engine has cpu_experts = " +
                std::to_string(experts));
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
  const EngineInfo all = PlanOf({}).info();
  const EngineInfo info = PlanOf({.cpu_experts = kShare}).info();
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
  REQUIRE(
      PlanOf({.host_bytes = plan.cpu_bytes, .cpu_experts = kShare}).info().residency.on_device ==
      plan.placed());
  EngineOptions two = WithShare({});
  two.group.ranks = 2;
  says(refused(two), "option cpu_experts = 5 with 2 devices");
  EngineOptions cpu = WithShare({});
  cpu.backend = Backend::kReference;
  cpu.step_limit.reset();
  const absl::Status none = refused(cpu);
  REQUIRE(IsUnsupported(none));
  says(none, "option cpu_experts = 5: backend reference computes all experts on the CPU");
}

}  // namespace
}  // namespace dsv4
