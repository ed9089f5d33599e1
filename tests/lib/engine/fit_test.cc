// SPDX-License-Identifier: Apache-2.0
// A plan for a GPU takes as much of its memory as is free, less a reserve: what does not fit lies
// in host memory, and a default context shrinks. On the fake CUDA runtime.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/loud_experts.h"

namespace dsv4 {
namespace {

using test::FakeCuda;
using test::LoudModel;
using test::SetFakeCuda;

constexpr int64_t kMiB = int64_t{1} << 20;

// A plan without its devices, which end with the GPU.
struct Planned {
  EngineInfo info;
  int64_t free = 0;  // bytes of the GPU
  absl::Status room;
};

Planned PlanOn(const FakeCuda& gpu, EngineOptions options = {}) {
  SetFakeCuda(gpu);
  options.backend = Backend::kCuda;
  const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), options);
  REQUIRE_OK(plan);
  return {plan->info(), plan->devices().front().FreeBytes().value_or(0), plan->CheckRoom()};
}

Planned PlanLeast(EngineOptions options) {
  options.weight_budgets.least = true;
  return PlanOn({}, options);
}

int64_t Total(const Planned& plan) { return plan.info.fullest().total(); }

// What a plan may take of so much free memory.
int64_t Usable(int64_t free) { return free - std::min(int64_t{1} << 30, free / 16); }

// A GPU on which plans may take `usable` bytes, up to 15 less. Opening it takes some of its memory.
FakeCuda WithUsable(int64_t usable) {
  const FakeCuda gpu;
  return {.bytes = usable * 16 / 15 + 1 + gpu.bytes - PlanOn(gpu).free};
}

EngineOptions Small() { return {.context_tokens = 4096, .prefill_chunk_tokens = 256}; }

TEST_CASE("weights that fit lie on the device") {
  const Planned plan = PlanOn({});
  REQUIRE(plan.info.residency.on_device == plan.info.residency.all());
  REQUIRE(plan.info.prefill_chunk_tokens == 2048);
  REQUIRE_OK(plan.room);
}

TEST_CASE("experts that do not fit lie in host memory, as few as possible") {
  const int64_t all = Total(PlanOn({}, Small()));
  const Planned least = PlanLeast(Small());
  int64_t before = 0;
  for (int64_t usable = Total(least); usable < all; usable += kMiB) {
    INFO(usable << " bytes usable, " << Total(least) << " at least, " << all << " for all");
    const Planned plan = PlanOn(WithUsable(usable), Small());
    const ResidencyPlan& experts = plan.info.residency;
    REQUIRE(Total(plan) <= Usable(plan.free));
    REQUIRE(experts.on_host > 0);
    REQUIRE(experts.on_disk == 0);
    REQUIRE(experts.on_device >= before);
    before = experts.on_device;
    // What is left is too small for an expert, or for the buffers that more experts on the device
    // would come with.
    REQUIRE(Usable(plan.free) - Total(plan) < usable / 100);
    REQUIRE_OK(plan.room);
  }
  REQUIRE(before > 0);
}

TEST_CASE("a limit that the host gives is kept, and a limit of host memory alone is one") {
  EngineOptions options = Small();
  const int64_t all = PlanOn({}, options).info.fullest().weights;
  const int64_t least = PlanLeast(options).info.fullest().weights;
  options.weight_budgets.device_bytes = (all + least) / 2;
  const Planned limited = PlanOn({}, options);
  REQUIRE(limited.info.fullest().weights <= options.weight_budgets.device_bytes);
  REQUIRE(limited.info.residency.on_host > 0);
  // All weights fit: there is nothing in host memory to limit.
  options.weight_budgets = {.host_bytes = 1};
  REQUIRE(PlanOn({}, options).info.residency.on_host == 0);
}

TEST_CASE("where Windows manages memory, half of it is pinned at most, in pieces") {
  const Planned least = PlanLeast(Small());
  const FakeCuda gpu = WithUsable(Total(least));
  const int64_t pinned = PlanOn(gpu, Small()).info.residency.host_bytes();
  const test::TempFolder root;
  std::filesystem::create_directories(root.path() + "/proc/sys/kernel");
  EngineOptions options = Small();
  options.system_root = root.path();
  // More than twice as much is free, and seven sixteenths of it are too little for the experts.
  const int64_t total = pinned * 16 / 7 - kMiB;
  root.Write("proc/meminfo", absl::StrCat("MemTotal: ", total / 1024,
                                          " kB\nMemAvailable: ", total / 1024, " kB\n"));
  root.Write("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n");
  const Planned linux = PlanOn(gpu, options);
  REQUIRE(linux.info.residency.on_disk == 0);
  REQUIRE(linux.info.residency.host_piece == 0);
  root.Write("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n");
  const Planned windows = PlanOn(gpu, options);
  REQUIRE_OK(windows.room);
  REQUIRE(windows.info.residency.on_host > 0);
  REQUIRE(windows.info.residency.on_disk > 0);
  REQUIRE(windows.info.residency.host_bytes() <= total / 16 * 7);
  REQUIRE(windows.info.residency.host_piece == int64_t{1} << 30);
}

TEST_CASE("a default context shrinks to the largest that fits; one that was asked for does not") {
  EngineOptions options{.max_sessions = 1, .prefill_chunk_tokens = 256};
  const Planned whole = PlanLeast(options);
  const int64_t context = whole.info.context_tokens;
  options.context_tokens = context / 2;
  const FakeCuda gpu = WithUsable(Total(PlanLeast(options)));
  options.context_tokens = 0;
  const Planned plan = PlanOn(gpu, options);
  INFO(plan.info.context_tokens << " of " << context);
  REQUIRE(plan.info.context_tokens == context / 2);
  REQUIRE(plan.info.cache_tokens == plan.info.context_tokens);
  REQUIRE(Total(plan) <= Usable(plan.free));
  REQUIRE_OK(plan.room);
  options.context_tokens = context;
  const Planned asked = PlanOn(gpu, options);
  REQUIRE(asked.info.context_tokens == context);
  REQUIRE_FAILS(asked.room, OutOfDeviceMemory().code(), "cuda:0 (fake) has ");
}

TEST_CASE("an integrated GPU leaves memory to the system") {
  const Planned plan = PlanOn({.integrated = true}, Small());
  REQUIRE(plan.info.residency.on_device == plan.info.residency.all());
  REQUIRE_OK(plan.room);
}

}  // namespace
}  // namespace dsv4
