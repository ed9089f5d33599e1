// SPDX-License-Identifier: Apache-2.0
// What is chosen on some thirty machines, by plan alone: GPUs of the fake CUDA runtime, and memory
// that a made /proc/meminfo tells.
#include "lib/proof/plan_choice.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/proof/open_best.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::FakeGpu;

constexpr int64_t kGB = 1'000'000'000, kGiB = int64_t{1} << 30;

FakeGpu Gpu(const char* name, int64_t gib, int32_t capability = 120) {
  return {.name = name, .compute_capability = capability, .bytes = gib * kGiB};
}
FakeGpu Rtx5090() { return Gpu("NVIDIA GeForce RTX 5090", 32); }
FakeGpu RtxPro6000() { return Gpu("NVIDIA RTX PRO 6000 Blackwell", 96); }
FakeGpu RtxPro5000() { return Gpu("NVIDIA RTX PRO 5000 Blackwell", 48); }
FakeGpu Gb10() {
  FakeGpu gpu = Gpu("NVIDIA GB10", 119, 121);
  gpu.integrated = true;
  return gpu;
}
FakeGpu Busy(FakeGpu gpu, int64_t gib) {
  gpu.used = gib * kGiB;
  return gpu;
}
std::vector<FakeGpu> Times(size_t count, const FakeGpu& gpu) {
  return std::vector<FakeGpu>(count, gpu);
}
std::vector<FakeGpu> Both(std::vector<FakeGpu> gpus, const FakeGpu& gpu) {
  gpus.push_back(gpu);
  return gpus;
}

// Flash with 43 layers, as random weights, on a machine of so many available gigabytes.
class Machine {
 public:
  Machine(const std::vector<FakeGpu>& gpus, int64_t memory_gb) : memory_(memory_gb * kGB) {
    // Memory of one GPU is that of all: more than any plan takes.
    test::FakeCuda cuda{.count = 0, .bytes = int64_t{1} << 50};
    cuda.gpus = gpus;
    SetFakeCuda(cuda);
    std::filesystem::create_directories(root_.path() + "/proc");
    root_.Write("proc/meminfo", absl::StrCat("MemTotal: ", memory_ / 1024,
                                             " kB\nMemAvailable: ", memory_ / 1024, " kB\n"));
    std::filesystem::resize_file(zeros_, 2 * kGiB);
  }
  OpenOptions Options() const {
    OpenOptions options{{.context_tokens = 65536, .max_sessions = 1, .threads = 16}};
    options.system_root = root_.path();
    options.synthetic_layers = 43;
    options.synthetic = {.file = zeros_, .all_in_file = true};
    options.prefer_gpu = true;
    return options;
  }
  absl::StatusOr<EnginePlan> Plan(const OpenOptions& options) const {
    return PlanBest(DSV4_FLASH, options);
  }
  int64_t memory() const { return memory_; }

 private:
  const int64_t memory_;
  test::TempFolder root_;
  const std::string zeros_ = root_.Write("zeros", "");
};

// "cuda:0,1", "cpu"
std::string ChoiceOf(const EngineInfo& info) {
  if (info.backend != Backend::kCuda) return "cpu";
  std::string choice;
  for (const DeviceBytes& device : info.devices) {
    absl::StrAppend(&choice, choice.empty() ? "cuda:" : ",", device.index);
  }
  return choice;
}

// The predictions are calculated by hand. A token reads 6 of 256 experts of 43 layers, 13.4 MB
// each: 3.45 GB; and 7.3 GB of other weights. Of the data sheet's bandwidth kernels get 0.85 (RTX
// 5090 and PRO 6000: 1.79 TB/s, PRO 5000: 1.34, 5080: 0.96, 5070 Ti: 0.90, 5070: 0.67, GB10: 0.27);
// of a link of 64 GB/s 50; a disk gives 3 GB/s, two channels of a CPU's memory 80. A layer takes
// 55 us besides, 22 more with exchanges, or 20 on the CPU. A GPU leaves 1 GiB free (a sixteenth,
// if that is less) and has 2.3 GB of cache and workspace; the host leaves an eighth free; a GB10 8%
// or 8 GiB.
struct Case {
  std::vector<FakeGpu> gpus;
  int64_t memory_gb;
  const char* choice;
  double decode;
};

std::vector<Case> Cases() {
  const FakeGpu ada = Gpu("NVIDIA GeForce RTX 4090", 24, 89);
  const FakeGpu h100 = Gpu("NVIDIA H100 80GB HBM3", 80, 90);
  return {
      {{Rtx5090()}, 32, "cuda:0", 1.26},
      {{Rtx5090()}, 64, "cuda:0", 1.68},
      {{Rtx5090()}, 96, "cuda:0", 2.54},
      {{Rtx5090()}, 128, "cuda:0", 5.20},
      {{Rtx5090()}, 192, "cuda:0", 14.96},
      {{Rtx5090()}, 256, "cuda:0", 14.96},
      {Times(2, Rtx5090()), 64, "cuda:0,1", 2.78},
      {Times(2, Rtx5090()), 128, "cuda:0,1", 34.3},
      {Times(2, Rtx5090()), 192, "cuda:0,1", 34.3},
      // Three do not split the model's output groups.
      {Times(3, Rtx5090()), 128, "cuda:0,1", 34.3},
      {Times(4, Rtx5090()), 128, "cuda:0,1,2,3", 101},
      {Times(8, Rtx5090()), 256, "cuda:0,1,2,3,4,5,6,7", 238},
      {{RtxPro6000()}, 64, "cuda:0", 14.2},
      {{RtxPro6000()}, 128, "cuda:0", 27.5},
      {{RtxPro6000()}, 256, "cuda:0", 27.5},
      {Times(2, RtxPro6000()), 64, "cuda:0,1", 146},
      {Times(2, RtxPro6000()), 128, "cuda:0,1", 146},
      {Times(4, RtxPro6000()), 256, "cuda:0,1,2,3", 197},
      {{RtxPro5000()}, 128, "cuda:0", 15.9},
      {Times(4, RtxPro5000()), 128, "cuda:0,1,2,3", 176},
      {{Gpu("NVIDIA GeForce RTX 5080", 16)}, 64, "cuda:0", 1.38},
      {{Gpu("NVIDIA GeForce RTX 5080", 16)}, 192, "cuda:0", 12.7},
      {{Gpu("NVIDIA GeForce RTX 5070 Ti", 16)}, 128, "cuda:0", 3.07},
      {{Gpu("NVIDIA GeForce RTX 5070", 12)}, 192, "cuda:0", 12.0},
      // All weights except experts take 9 GB.
      {{Gpu("NVIDIA GeForce RTX 5060", 8)}, 128, "cpu", 2.06},
      {{Gb10()}, 64, "cuda:0", 1.17},
      {{Gb10()}, 119, "cuda:0", 2.25},
      // GPUs of one kind, the faster choice.
      {{Rtx5090(), RtxPro6000()}, 128, "cuda:1", 27.5},
      {Both(Times(2, Rtx5090()), RtxPro6000()), 128, "cuda:0,1", 34.3},
      // Others use the first one.
      {{Busy(Rtx5090(), 24), Rtx5090()}, 192, "cuda:1", 14.96},
      {{Busy(Rtx5090(), 24)}, 192, "cpu", 7.37},
      {{ada, h100}, 192, "cpu", 7.37},
      {{h100, Rtx5090()}, 192, "cuda:1", 14.96},
      {{}, 32, "cpu", 0.91},
      {{}, 64, "cpu", 1.11},
      {{}, 128, "cpu", 2.06},
      {{}, 192, "cpu", 7.37},
      {{}, 512, "cpu", 7.37},
  };
}

TEST_CASE("machines: what is chosen, how fast, and that it fits") {
  for (const Case& one : Cases()) {
    const Machine machine(one.gpus, one.memory_gb);
    const absl::StatusOr<EnginePlan> plan = machine.Plan(machine.Options());
    REQUIRE_OK(plan);
    const EngineInfo& info = plan->info();
    INFO(one.gpus.size() << " GPUs, " << one.memory_gb << " GB: " << info.backend_reason);
    CHECK(ChoiceOf(info) == one.choice);
    CHECK(info.expected_decode > 0.8 * one.decode);
    CHECK(info.expected_decode < 1.2 * one.decode);
    if (info.backend != Backend::kCuda) continue;
    const FakeGpu& gpu = one.gpus[static_cast<size_t>(info.devices.front().index)];
    const int64_t host = info.residency.host_bytes();
    if (gpu.integrated) {
      const int64_t reserve = std::max(8 * kGiB, machine.memory() / 100 * 8);
      CHECK(info.fullest().total() + host <= machine.memory() - reserve);
    } else {
      CHECK(info.fullest().total() <= gpu.bytes - std::min(kGiB, gpu.bytes / 16));
      CHECK(host <= machine.memory() / 8 * 7);
    }
  }
}

TEST_CASE("the reason names what was chosen and why each alternative was not") {
  const Machine machine({Gpu("NVIDIA H100 80GB HBM3", 80, 90), Rtx5090(), Rtx5090()}, 128);
  const absl::StatusOr<EnginePlan> plan = machine.Plan(machine.Options());
  REQUIRE_OK(plan);
  const std::string& reason = plan->info().backend_reason;
  CHECK(absl::StartsWith(reason, "cuda:1,2 (2 x NVIDIA GeForce RTX 5090): about "));
  CHECK_THAT(reason, Catch::Contains("; not cuda:1 (NVIDIA GeForce RTX 5090): about "));
  CHECK_THAT(reason, Catch::Contains("; not the CPU: about "));
  CHECK_THAT(reason, Catch::Contains("(NVIDIA H100 80GB HBM3) has compute capability 9.0"));
}

TEST_CASE("operators of the second set of kernels are named where a GPU needs it") {
  const Machine machine({Rtx5090()}, 128);
  OpenOptions options = machine.Options();
  options.prove = true;
  const auto planned = [&](KernelSet set) {
    options.known_answers = [set](absl::Span<const int32_t>, const std::string&) {
      return ProvenKernels{set, set == KernelSet::kFirst ? "" : "linear_fp8.y differs"};
    };
    const absl::StatusOr<EnginePlan> plan = machine.Plan(options);
    REQUIRE_OK(plan);
    return plan->info();
  };
  CHECK(planned(KernelSet::kFirst).second_set_operators.empty());
  const EngineInfo info = planned(KernelSet::kSecond);
  CHECK(info.second_set_operators ==
        std::vector<std::string>{"linear_fp8", "expert_ffn", "pack_weight"});
  CHECK_THAT(info.backend_reason, Catch::Contains("linear_fp8.y differs"));
}

TEST_CASE("a number of devices is one of the best GPUs of one kind") {
  const std::vector<FakeGpu> gpus = {Busy(Rtx5090(), 8), Rtx5090(), RtxPro6000(), Rtx5090()};
  const Machine machine(gpus, 256);
  const auto choose = [&](int32_t count, bool prefer) {
    OpenOptions options = machine.Options();
    options.backend = Backend::kCuda;
    options.prefer_gpu = prefer;
    options.device_count = count;
    const absl::StatusOr<EnginePlan> plan = machine.Plan(options);
    return plan.ok() ? ChoiceOf(plan->info()) : std::string(plan.status().message());
  };
  CHECK(choose(0, false) == "cuda:2");
  CHECK(choose(1, false) == "cuda:2");
  CHECK(choose(2, false) == "cuda:1,3");
  CHECK(choose(1, true) == "cuda:2");
  CHECK(choose(2, true) == "cuda:1,3");
  CHECK_THAT(choose(4, false), Catch::Contains("option device_count = 4"));
  CHECK(choose(4, true) == "cpu");
}

TEST_CASE("limits that the host gives hold for every choice") {
  const Machine machine({Rtx5090()}, 192);
  OpenOptions options = machine.Options();
  options.weight_budgets = {.device_bytes = 20 * kGB, .host_bytes = 40 * kGB};
  const absl::StatusOr<EnginePlan> limited = machine.Plan(options);
  REQUIRE_OK(limited);
  CHECK(ChoiceOf(limited->info()) == "cuda:0");
  CHECK(limited->info().fullest().weights <= 20 * kGB);
  CHECK(limited->info().residency.host_bytes() <= 40 * kGB);
  CHECK(limited->info().residency.on_disk > 0);
  // More than there is: what there is.
  options.weight_budgets = {.device_bytes = 200 * kGB, .host_bytes = 500 * kGB};
  const absl::StatusOr<EnginePlan> high = machine.Plan(options);
  REQUIRE_OK(high);
  INFO(high->info().backend_reason);
  CHECK(high->info().residency.on_disk == 0);
  CHECK(high->info().fullest().total() <= 31 * kGiB);
  // Too little for a GPU: the CPU keeps it, by using none.
  options.weight_budgets = {.device_bytes = kGB, .host_bytes = 40 * kGB};
  const absl::StatusOr<EnginePlan> low = machine.Plan(options);
  REQUIRE_OK(low);
  CHECK(ChoiceOf(low->info()) == "cpu");
  CHECK(low->info().residency.host_bytes() <= 40 * kGB);
  CHECK_THAT(low->info().backend_reason, Catch::Contains("option device_weight_bytes = "));
  options.weight_budgets = {.device_bytes = -1};
  CHECK(machine.Plan(options).status().code() == InvalidArgument().code());
}

TEST_CASE("a default context that does not fit is the longest that does, and this is said") {
  for (const auto& gpus : {std::vector<FakeGpu>{Gpu("NVIDIA GeForce RTX 5080", 16)}, {}}) {
    const Machine machine(gpus, gpus.empty() ? 12 : 192);
    OpenOptions options = machine.Options();
    options.context_tokens = 0;
    options.max_sessions = 4;
    const absl::StatusOr<EnginePlan> plan = machine.Plan(options);
    REQUIRE_OK(plan);
    INFO(plan->info().backend_reason);
    CHECK((plan->info().backend == Backend::kCuda) == !gpus.empty());
    CHECK(plan->info().context_tokens < 1048576);
    CHECK(plan->info().context_tokens >= 4096);
    CHECK_THAT(plan->info().backend_reason,
               Catch::Contains(absl::StrCat("the context has ", plan->info().context_tokens,
                                            " of the model's 1048576 tokens")));
  }
}

}  // namespace
}  // namespace dsv4
