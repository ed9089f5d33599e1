// SPDX-License-Identifier: Apache-2.0
// The CPU backend with a budget of host memory for experts: what it computes does not depend on it.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/checkpoint.h"
#include "lib/io/content_hash.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/residency.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::LoudModel;
using test::OpenBundled;
using test::OpenColdSession;
using test::Outcome;

EngineOptions WithHostBytes(int64_t bytes, std::vector<int32_t> devices = {}) {
  return {.devices = std::move(devices),
          .context_tokens = 512,
          .max_sessions = 3,
          .prefill_chunk_tokens = 9,
          .threads = 2,
          .max_draft_tokens = 2,
          .weight_budgets = {.host_bytes = bytes}};
}

Outcome Run(const std::shared_ptr<Engine>& engine) {
  Outcome outcome;
  const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE_OK(session->Sync(AnyTokens(11, 1)));
  Step(*session, 4, &outcome);
  StepWithFork(*session, &outcome);
  outcome.logits = test::LogitsAfter(engine, AnyTokens(12, 3));
  return outcome;
}

TEST_CASE("the CPU computes the same whatever of its experts stays in memory") {
  const std::shared_ptr<Engine> whole = OpenBundled(WithHostBytes(0), LoudModel());
  REQUIRE(whole->info().residency.all() == 0);
  const Outcome expected = Run(whole);
  const std::shared_ptr<Engine> none = OpenBundled(WithHostBytes(1), LoudModel());
  const ResidencyPlan& plan = none->info().residency;
  REQUIRE(plan.on_disk == plan.all());
  REQUIRE(Run(none) == expected);
  const ExpertTraffic all = none->expert_traffic();
  REQUIRE(all.disk_reads > 0);
  REQUIRE(all.host_reads == 0);
  REQUIRE(all.disk_bytes == all.disk_reads * plan.expert_bytes);
  // Half of them, on one device and on two.
  const int64_t half = plan.all() / 2 * plan.expert_bytes;
  for (const std::vector<int32_t>& devices : {std::vector<int32_t>{}, {0, 1}}) {
    const std::shared_ptr<Engine> some = OpenBundled(WithHostBytes(half, devices), LoudModel());
    REQUIRE(some->info().residency.on_host == plan.all() / 2);
    REQUIRE(Run(some) == expected);
    const ExpertTraffic part = some->expert_traffic();
    REQUIRE(part.host_reads > 0);
    REQUIRE(part.host_reads + part.disk_reads == all.disk_reads);
  }
  const std::shared_ptr<Engine> every =
      OpenBundled(WithHostBytes(plan.all() * plan.expert_bytes), LoudModel());
  REQUIRE(every->info().residency.on_disk == 0);
  REQUIRE(Run(every) == expected);
  REQUIRE(every->expert_traffic().host_reads == all.disk_reads);
}

TEST_CASE("a plan of the CPU counts the experts that stay in memory and on disk") {
  const auto plan_of = [](int64_t bytes) {
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), WithHostBytes(bytes));
    REQUIRE_OK(plan);
    return plan->info();
  };
  REQUIRE(plan_of(0).residency.all() == 0);
  const EngineInfo none = plan_of(1);
  REQUIRE(none.residency.on_host == 0);
  REQUIRE(none.token_expert_bytes > 0);
  const int64_t bytes = none.residency.expert_bytes;
  REQUIRE(plan_of(10 * bytes).residency.on_host == 10);
  REQUIRE(plan_of(11 * bytes - 1).residency.host_bytes() == 10 * bytes);
  REQUIRE(plan_of(1'000'000 * bytes).residency.on_disk == 0);
}

TEST_CASE("experts that a profile shows as used most begin in memory, with the same bits") {
  const test::TempFolder folder;
  const std::string path = folder.File("profile");
  const ResidencyPlan plan = OpenBundled(WithHostBytes(1), LoudModel())->info().residency;
  EngineOptions options = WithHostBytes(plan.all() / 2 * plan.expert_bytes);
  const auto run = [&](int64_t* host_reads) {
    const std::shared_ptr<Engine> engine = OpenBundled(options, LoudModel());
    const Outcome outcome = Run(engine);
    *host_reads = engine->expert_traffic().host_reads;
    return outcome;
  };
  int64_t without = 0, first = 0, second = 0;
  const Outcome expected = run(&without);
  options.expert_profile = path;
  REQUIRE(run(&first) == expected);  // and writes the file
  REQUIRE(first == without);
  REQUIRE(run(&second) == expected);
  REQUIRE(second > first);
  // Suspending writes it, too, and time alone.
  std::filesystem::remove(path);
  {
    const std::shared_ptr<Engine> engine = OpenBundled(options, LoudModel());
    REQUIRE_OK(engine->Suspend(""));
    REQUIRE(std::filesystem::remove(path));
    REQUIRE_OK(engine->Resume({}));
    REQUIRE(Run(engine) == expected);
  }
  REQUIRE(std::filesystem::remove(path));
  options.profile_interval = std::chrono::milliseconds(1);
  {
    const std::shared_ptr<Engine> engine = OpenBundled(options, LoudModel());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!std::filesystem::exists(path) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    REQUIRE(std::filesystem::exists(path));
  }
  // A folder of profiles is used where there are places to choose, and a damaged file replaced.
  options.expert_profile.clear();
  const test::TempFolder profiles;
  options.expert_profiles = profiles.path();
  int64_t kept_first = 0, kept_second = 0, kept_third = 0;
  REQUIRE(run(&kept_first) == expected);
  REQUIRE(kept_first == without);
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(profiles.path())) {
    files.push_back(file.path().filename().string());
  }
  REQUIRE(files.size() == 1);
  const std::string name = HexOf((*Checkpoint::Open(LoudModel()))->Fingerprint()) + ".profile";
  REQUIRE(files.front() == name);
  REQUIRE(run(&kept_second) == expected);
  REQUIRE(kept_second > kept_first);
  profiles.Write(name, "damaged");
  REQUIRE(run(&kept_third) == expected);
  REQUIRE(kept_third == without);
  {
    EngineOptions whole = options;
    whole.weight_budgets = {};
    std::filesystem::remove(profiles.File(name));
    REQUIRE(Run(OpenBundled(whole, LoudModel())) == expected);
    REQUIRE(!std::filesystem::exists(profiles.File(name)));
  }
  options.expert_profiles.clear();
  options.expert_profile = path;
  const auto refused = [&](const EngineOptions& with) {
    const absl::Status status = Engine::Open(LoudModel(), with).status();
    REQUIRE(Engine::Plan(LoudModel(), with).status() == status);
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(path));
    return status;
  };
  EngineOptions whole = options;
  whole.weight_budgets = {};
  REQUIRE(absl::IsInvalidArgument(refused(whole)));
  const auto bytes = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, bytes - 1);
  REQUIRE(IsCorrupt(refused(options)));
  REQUIRE(std::filesystem::file_size(path) == bytes - 1);
}

}  // namespace
}  // namespace dsv4
