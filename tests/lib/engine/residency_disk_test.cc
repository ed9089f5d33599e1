// SPDX-License-Identifier: Apache-2.0
// Experts on disk: what a step computes does not depend on them, and a step whose reads fail loses
// no session.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/residency.h"
#include "tests/support/watched_reads.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::LoudModel;
using test::MostOnDisk;
using test::OpenBundled;
using test::OpenColdSession;
using test::OpenLoud;
using test::Outcome;
using test::PlanOf;
using test::WithBudgets;

constexpr int kExpertsOnHost = 6;

// A prompt in two chunks, then drafts, and a fork.
Outcome Run(const std::shared_ptr<Engine>& engine) {
  Outcome outcome;
  const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 2});
  REQUIRE_OK(session->Sync(AnyTokens(11, 1)));
  Step(*session, 1, &outcome);
  {
    const absl::StatusOr<std::unique_ptr<Session>> fork = session->Fork();
    REQUIRE_OK(fork);
    Step(**fork, 1, &outcome);
  }
  outcome.logits = test::LogitsAfter(engine, AnyTokens(3, 3));
  return outcome;
}

TEST_CASE("experts that are read from disk change no token and no logit") {
  const Outcome expected = Run(OpenLoud(WithBudgets({})));
  const std::shared_ptr<Engine> disk = OpenLoud(WithBudgets(MostOnDisk(0)));
  const ResidencyPlan& plan = disk->info().residency;
  REQUIRE(plan.on_host == 0);
  REQUIRE(plan.on_device == plan.blocks);
  REQUIRE(plan.on_device + plan.on_disk == plan.all());
  REQUIRE(Run(disk) == expected);
  const ExpertTraffic traffic = disk->expert_traffic();
  REQUIRE(traffic.disk_reads > 0);
  REQUIRE(traffic.disk_bytes > 0);
  REQUIRE(traffic.host_reads == 0);
  // The first three layers are hash-routed, so most steps know some of their experts beforehand.
  REQUIRE(traffic.prefetched > 0);
  REQUIRE(traffic.prefetched < traffic.disk_reads);
  // While other experts move.
  ExpertBudgets all_tiers = MostOnDisk(kExpertsOnHost);
  all_tiers.shuffle = 7;
  all_tiers.plain_reads = true;
  const std::shared_ptr<Engine> tiers = OpenLoud(WithBudgets(all_tiers));
  REQUIRE(tiers->info().residency.on_host == kExpertsOnHost);
  REQUIRE(Run(tiers) == expected);
  REQUIRE(tiers->expert_traffic().moved > 0);
  REQUIRE(tiers->expert_traffic().host_reads > 0);
  REQUIRE(tiers->expert_traffic().disk_reads > 0);
}

TEST_CASE("a step whose reads fail is an error that loses no session") {
  const test::TempFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(LoudModel())) {
    std::filesystem::copy(file.path(), folder.File(file.path().filename().string()));
  }
  ExpertBudgets budgets = MostOnDisk(0);
  budgets.plain_reads = true;
  const auto open = [&] { return OpenBundled(WithBudgets(budgets), folder.path()); };
  const std::vector<int32_t> prompt = AnyTokens(3, 5);
  Outcome expected;
  {
    const std::unique_ptr<Session> session = OpenColdSession(open());
    REQUIRE_OK(session->Sync(prompt));
    Step(*session, 3, &expected);
  }
  const std::shared_ptr<Engine> engine = open();
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  Outcome outcome;
  REQUIRE_OK(session->Sync(prompt));
  test::reads_before_failure = 3;
  const absl::Status failed = session->Step().status();
  test::reads_before_failure = test::kNoFailure;
  REQUIRE(IsIoError(failed));
  REQUIRE_THAT(std::string(failed.message()), Catch::Contains(folder.path()));
  REQUIRE_THAT(std::string(failed.message()), Catch::Contains("Input/output error"));
  Step(*session, 1, &outcome);

  // Files that get shorter, all of them.
  std::vector<std::pair<std::string, std::string>> contents;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().extension() != ".safetensors") continue;
    std::ifstream in(file.path(), std::ios::binary);
    contents.emplace_back(file.path().string(),
                          std::string(std::istreambuf_iterator<char>(in), {}));
    std::filesystem::resize_file(file.path(), 4096);
  }
  const absl::Status shorter = session->Step().status();
  for (const auto& [path, content] : contents) {
    std::ofstream(path, std::ios::binary | std::ios::in)
        .write(content.data(), static_cast<int64_t>(content.size()));
  }
  REQUIRE(IsCorrupt(shorter));
  REQUIRE_THAT(std::string(shorter.message()), Catch::Contains(folder.path()));
  REQUIRE_THAT(std::string(shorter.message()), Catch::Contains("shorter"));
  Step(*session, 2, &outcome);
  REQUIRE(outcome == expected);
}

TEST_CASE(
    "budgets that have no room for reads from disk are refused with the least that would do") {
  const ExpertBudgets budgets = MostOnDisk(0);
  const auto refused = [](const ExpertBudgets& less, const std::string& option, int64_t least) {
    const absl::Status status = Engine::Plan(LoudModel(), WithBudgets(less)).status();
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE_THAT(std::string(status.message()),
                 Catch::Contains("option " + option) &&
                     Catch::Contains("at least " + std::to_string(least)));
  };
  refused({.host_bytes = budgets.host_bytes - 1, .least = true}, "host_weight_bytes",
          budgets.host_bytes);
  const EnginePlan plan = PlanOf(budgets);
  const int64_t device_bytes = plan.info().fullest().weights;
  refused({.device_bytes = device_bytes - 1, .host_bytes = budgets.host_bytes},
          "device_weight_bytes", device_bytes);
  const ExpertBudgets both{.device_bytes = device_bytes, .host_bytes = budgets.host_bytes};
  REQUIRE(PlanOf(both).info().residency.on_disk == plan.info().residency.on_disk);
}

}  // namespace
}  // namespace dsv4
