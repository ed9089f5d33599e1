// SPDX-License-Identifier: Apache-2.0
// What a driver refuses, or would rather end, most of all where Windows manages a GPU: pinned
// memory beyond a limit, memory that others have taken since, and launches that run for too long.
// On the fake CUDA runtime.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/loud_experts.h"

namespace dsv4::test {
namespace {

constexpr int32_t kPinned = 2;  // so that steps find candidates there

EngineOptions Small() {
  return {.backend = Backend::kCuda,
          .context_tokens = 1024,
          .max_sessions = 2,
          .prefill_chunk_tokens = 64};
}

// With as few experts on the device as possible, in blocks of some experts.
EngineOptions OnHost() {
  EngineOptions options = Small();
  options.weight_budgets.least = true;
  SetFakeCuda({.pinned = kPinned});
  const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), options);
  REQUIRE_OK(plan);
  options.weight_budgets.host_piece = 16 * plan->info().residency.expert_bytes;
  return options;
}

struct Opened {
  std::shared_ptr<Engine> engine;
  FakeCudaUse use;
  std::vector<std::string> warnings;
};

Opened OpenOn(const FakeCuda& gpu, const EngineOptions& options) {
  SetFakeCuda(gpu);
  absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(LoudModel(), options);
  REQUIRE_OK(engine);
  return {*std::move(engine), GetFakeCudaUse(), {}};
}

// Kernels do nothing there, but steps end.
void Steps(const std::shared_ptr<Engine>& engine) {
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(70, 1)));
  for (int i = 0; i < 3; ++i) REQUIRE_OK(session->Step());
}

TEST_CASE(
    "pinned memory that is refused makes a plan with what was granted, and the rest on disk") {
  const EngineOptions options = OnHost();
  int64_t experts = 0, others = 0, on_host = 0, on_device = 0;
  {
    const Opened all = OpenOn({.pinned = kPinned}, options);
    const ResidencyPlan& plan = all.engine->info().residency;
    REQUIRE(plan.on_disk == 0);
    REQUIRE(plan.on_host > 50);
    experts = plan.host_bytes();
    others = all.use.pinned - experts;  // of the device, and of steps
    on_host = plan.on_host;
    on_device = plan.on_device;
    REQUIRE(all.engine->info().backend_reason.find("pinned") == std::string::npos);
  }
  for (const int64_t eighths : {7, 5, 3}) {
    CAPTURE(eighths);
    // Before experts come, only the device has pinned any: so much is granted to them in the end.
    const int64_t pinnable = others + experts * eighths / 8;
    const Opened some = OpenOn({.pinnable = pinnable, .pinned = kPinned}, options);
    const ResidencyPlan& plan = some.engine->info().residency;
    // The other one: of memory to measure the link, which may be refused.
    REQUIRE(some.use.refusals == 2);
    REQUIRE(some.use.pinned <= pinnable);
    REQUIRE(plan.on_disk > 0);
    REQUIRE(plan.on_host > 0);
    REQUIRE(plan.on_host < on_host);
    // An eighth of what was granted is left for others, and of a block.
    REQUIRE(plan.host_bytes() <= experts * eighths / 8);
    REQUIRE(plan.host_bytes() > experts * (eighths - 2) / 8 - options.weight_budgets.host_piece);
    REQUIRE_THAT(
        some.engine->info().backend_reason,
        Catch::Contains("of " + std::to_string(experts) + " bytes of host memory for experts, ") &&
            Catch::Contains(std::to_string(plan.on_disk) + " of " + std::to_string(plan.all()) +
                            " experts stay on disk"));
    // Suspended and resumed, it is the same plan.
    Steps(some.engine);
    REQUIRE_OK(some.engine->Suspend(""));
    REQUIRE_OK(some.engine->Resume({}));
    REQUIRE(some.engine->info().residency.on_host == plan.on_host);
    Steps(some.engine);
    REQUIRE(GetFakeCudaUse().pinned <= pinnable);
  }
  // Also with a limit that the options set.
  EngineOptions limited = options;
  limited.weight_budgets.host_bytes = experts * 3 / 4;
  const Opened some = OpenOn({.pinnable = others + experts / 2, .pinned = kPinned}, limited);
  REQUIRE(some.engine->info().residency.host_bytes() < experts / 2);
  REQUIRE(some.engine->info().residency.on_host > 0);
  REQUIRE(some.engine->info().residency.on_device >= on_device);
}

TEST_CASE("a refusal of one block for all experts is followed by smaller ones") {
  EngineOptions options = OnHost();
  options.weight_budgets.host_piece = 0;
  int64_t pinnable = 0;  // all but the experts, and what reads from disk need
  {
    const Opened all = OpenOn({.pinned = kPinned}, options);
    const ResidencyPlan& plan = all.engine->info().residency;
    REQUIRE(all.use.refusals == 0);
    REQUIRE(plan.host_piece == 0);
    pinnable = all.use.pinned - plan.host_bytes() + plan.least_host_bytes;
  }
  // The experts of this model are smaller together than one of those: none remain in host memory.
  const Opened none = OpenOn({.pinnable = pinnable, .pinned = kPinned}, options);
  REQUIRE(none.use.refusals == 2);
  REQUIRE(none.engine->info().residency.host_piece == int64_t{1} << 30);
  REQUIRE(none.engine->info().residency.on_host == 0);
  REQUIRE(none.engine->info().residency.on_disk > 0);
  Steps(none.engine);
}

TEST_CASE("without pinned memory to read from disk there is an error that names the option") {
  const EngineOptions options = OnHost();
  int64_t device = 0;
  {
    SetFakeCuda({});
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), options);
    REQUIRE_OK(plan);
    device = GetFakeCudaUse().pinned;
  }
  SetFakeCuda({.pinnable = device + 1024, .pinned = kPinned});
  const absl::Status status = Engine::Open(LoudModel(), options).status();
  REQUIRE_FAILS(status, OutOfHostMemory().code(), "cannot pin ");
  REQUIRE(ArgumentOf(status) == "host_weight_bytes");
  REQUIRE(GetFakeCudaUse().left == 0);
}

TEST_CASE("a limit of the device that has no room for reads from disk is told") {
  EngineOptions options = OnHost();
  options.weight_budgets.least = false;
  {
    SetFakeCuda({});
    EngineOptions least = options;
    least.weight_budgets.least = true;
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), least);
    REQUIRE_OK(plan);
    options.weight_budgets.device_bytes = plan->info().fullest().weights;
  }
  int64_t pinnable = 0;
  {
    const Opened all = OpenOn({.pinned = kPinned}, options);
    REQUIRE(all.engine->info().fullest().weights <= options.weight_budgets.device_bytes);
    pinnable = all.use.pinned - all.engine->info().residency.host_bytes() / 2;
  }
  SetFakeCuda({.pinnable = pinnable, .pinned = kPinned});
  const absl::StatusOr<std::shared_ptr<Engine>> some = Engine::Open(LoudModel(), options);
  if (some.ok()) {
    REQUIRE((*some)->info().fullest().weights <= options.weight_budgets.device_bytes);
    return;
  }
  REQUIRE_FAILS(some.status(), InvalidArgument("").code(), "option device_weight_bytes = ");
}

TEST_CASE("an engine that is resumed where less memory is free has fewer experts on the device") {
  const Opened opened = OpenOn({.pinned = kPinned}, Small());
  const std::shared_ptr<Engine>& engine = opened.engine;
  const ResidencyPlan whole = engine->info().residency;
  REQUIRE(whole.on_device == whole.all());
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(70, 1)));
  REQUIRE_OK(session->Step());
  REQUIRE_OK(engine->Suspend(""));
  const int64_t free = engine->device().FreeBytes().value_or(0);
  const int64_t taken =
      free - engine->info().fullest().total() + whole.expert_bytes * whole.all() / 2;
  TakeFakeMemory(taken);
  REQUIRE_OK(engine->Resume({}));
  const ResidencyPlan& some = engine->info().residency;
  REQUIRE(some.on_device < whole.on_device);
  REQUIRE(some.on_device >= some.blocks);
  REQUIRE(some.on_host > 0);
  REQUIRE(engine->info().fullest().total() <= free - taken);
  REQUIRE(engine->info().prefill_chunk_tokens == 64);
  REQUIRE_OK(session->Step());
  // It stays suspended if even the least is too much, and is resumed when there is room.
  REQUIRE_OK(engine->Suspend(""));
  const int64_t rest = engine->device().FreeBytes().value_or(0) - (int64_t{1} << 20);
  TakeFakeMemory(rest);
  REQUIRE_FAILS(engine->Resume({}), OutOfDeviceMemory().code(), "cuda:0 (fake) has ");
  REQUIRE(engine->suspended());
  TakeFakeMemory(-rest);
  REQUIRE_OK(engine->Resume({}));
  REQUIRE_OK(session->Step());
}

// The root of a file system whose kernel is WSL2's, or not.
void WriteRoot(const TempFolder& root, bool windows) {
  std::filesystem::create_directories(root.path() + "/proc/sys/kernel");
  root.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n");
  root.Write("proc/sys/kernel/osrelease",
             windows ? "6.6.87.2-microsoft-standard-WSL2\n" : "6.1.0-37-amd64\n");
}

TEST_CASE("where Windows would move memory of the GPU to the host, an allocation fails instead") {
  const TempFolder root;
  EngineOptions options = Small();
  options.system_root = root.path();
  for (const bool windows : {false, true}) {
    CAPTURE(windows);
    WriteRoot(root, windows);
    SetFakeCuda({.pages = true, .pinned = kPinned});
    absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), options);
    REQUIRE_OK(plan);
    Device& device = plan->devices().front();
    const int64_t free = device.FreeBytes().value_or(0);
    REQUIRE_OK(device.Allocate(free, "a test"));
    const absl::StatusOr<Buffer> more = device.Allocate(free + 1, "a test");
    REQUIRE(more.ok() == !windows);
    if (windows) {
      REQUIRE_FAILS(more, OutOfDeviceMemory().code(),
                    std::to_string(free) + " bytes are free, less than the " +
                        std::to_string(free + 1) + " for the a test, which Windows would move");
    }
  }
}

TEST_CASE("plans leave more of a GPU's memory free where Windows shares it out") {
  const TempFolder root;
  EngineOptions options = Small();
  options.system_root = root.path();
  int64_t left[2] = {};
  SetFakeCuda({});
  int64_t bytes = 0;
  {
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), Small());
    REQUIRE_OK(plan);
    // Elsewhere all experts find room.
    bytes = FakeCuda().bytes - plan->devices().front().FreeBytes().value_or(0) +
            plan->info().fullest().total() * 16 / 15 + 1;
  }
  for (const bool windows : {false, true}) {
    WriteRoot(root, windows);
    SetFakeCuda({.bytes = bytes});
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(LoudModel(), options);
    REQUIRE_OK(plan);
    const int64_t free = plan->devices().front().FreeBytes().value_or(0);
    left[windows] = free - plan->info().fullest().total();
    REQUIRE(left[windows] >= free / (windows ? 8 : 16));
  }
  REQUIRE(left[true] > left[false]);
}

// The most launches that one waits for, of a prompt in one step.
int64_t MostAhead(bool display) {
  EngineOptions options = Small();
  options.prefill_chunk_tokens = 512;
  const Opened opened = OpenOn({.display = display, .pinned = kPinned}, options);
  const std::unique_ptr<Session> session = OpenColdSession(opened.engine);
  REQUIRE_OK(session->Sync(AnyTokens(300, 1)));
  TakeFakeLaunches();
  REQUIRE_OK(session->Prefill(0, nullptr));
  int64_t most = 0;
  for (const FakeLaunch& launch : TakeFakeLaunches()) most = std::max(most, launch.ahead);
  return most;
}

// Kernels that steps of one row launch one by one.
size_t LaunchesOfSteps(const FakeCuda& gpu, const EngineOptions& options) {
  const Opened opened = OpenOn(gpu, options);
  REQUIRE(opened.engine->info().residency.on_disk == 0);
  const std::unique_ptr<Session> session = OpenColdSession(opened.engine);
  REQUIRE_OK(session->Sync(AnyTokens(3, 1)));
  REQUIRE_OK(session->Step());
  TakeFakeLaunches();
  REQUIRE_OK(session->Step());
  return TakeFakeLaunches().size();
}

TEST_CASE("a driver that ends long launches gets no graph that reads host memory for long") {
  const EngineOptions on_host = OnHost();
  constexpr double kSlow = 1e9;
  REQUIRE(LaunchesOfSteps({.display = true, .pinned = kPinned}, on_host) < 5);
  REQUIRE(LaunchesOfSteps({.slowness = kSlow, .pinned = kPinned}, on_host) < 5);
  REQUIRE(LaunchesOfSteps({.display = true, .slowness = kSlow, .pinned = kPinned}, Small()) < 5);
  REQUIRE(LaunchesOfSteps({.display = true, .slowness = kSlow, .pinned = kPinned}, on_host) > 50);
}

TEST_CASE("a driver that ends long launches has one layer of a prompt at a time, others two") {
  const int64_t two = MostAhead(false), one = MostAhead(true);
  CAPTURE(one);
  REQUIRE(one < 40);
  REQUIRE(two > one + 15);
}

}  // namespace
}  // namespace dsv4::test
