// SPDX-License-Identifier: Apache-2.0
// A GPU that fails at any of its calls, or has no memory left for any allocation: the call of the
// library that meets it says so, a lost GPU's every later one, too, and nothing is left behind. The
// GPU is the fake one of tests/support/fake_cuda_runtime.h. Linked with --wrap=posix_fadvise.
#include <fcntl.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/checkpoint.h"
#include "lib/proof/open_best.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/loud_experts.h"

namespace {
int64_t dropped_bytes = 0;
int dropped_files = 0;  // wholly
}  // namespace

extern "C" {
int __real_posix_fadvise(int file, off_t offset, off_t bytes, int advice);
int __wrap_posix_fadvise(int file, off_t offset, off_t bytes, int advice) {
  if (advice == POSIX_FADV_DONTNEED) {
    dropped_bytes += bytes;
    dropped_files += offset == 0 && bytes == 0 ? 1 : 0;
  }
  return __real_posix_fadvise(file, offset, bytes, advice);
}
}

namespace dsv4::test {
namespace {

// Of pinned memory, so that steps find candidates there.
constexpr int32_t kPinned = 2;

// `status` of calls of the library, which is of a failure if a call of theirs failed: no result
// comes of that.
absl::Status Told(const absl::Status& status) {
  REQUIRE(status.ok() == !GetFakeCudaUse().failed);
  return status;
}

absl::Status Open(std::shared_ptr<Engine>* engine) {
  DSV4_ASSIGN_OR_RETURN(*engine, Engine::Open(kBundledModel, {.backend = Backend::kCuda,
                                                              .context_tokens = 1024,
                                                              .cache_tokens = 2048,
                                                              .max_sessions = 3,
                                                              .prefill_chunk_tokens = 64,
                                                              .max_draft_tokens = 2}));
  return absl::OkStatus();
}

absl::Status Steps(Session* session) {
  for (int i = 0; i < 3; ++i) DSV4_RETURN_IF_ERROR(Told(session->Step().status()));
  return absl::OkStatus();
}

// A prompt in chunks and steps with drafts; the session saved and loaded by one whose penalties
// need whole rows of logits.
absl::Status Use(const std::shared_ptr<Engine>& engine) {
  DSV4_ASSIGN_OR_RETURN(const auto first, Session::Open(engine, {.draft_tokens = 2}));
  DSV4_RETURN_IF_ERROR(first->Sync(AnyTokens(300, 1)).status());
  DSV4_RETURN_IF_ERROR(Told(first->Prefill(0, nullptr).status()));
  DSV4_RETURN_IF_ERROR(Steps(first.get()));
  std::vector<uint8_t> image(static_cast<size_t>(first->SaveBytes()));
  DSV4_RETURN_IF_ERROR(Told(first->SaveTo(absl::MakeSpan(image))));
  DSV4_ASSIGN_OR_RETURN(const auto second, Session::Open(engine, {.frequency_penalty = 1}));
  DSV4_RETURN_IF_ERROR(second->Load(image, "an image"));
  return Steps(second.get());
}

// Its kernels do nothing, so that the answers are not the known ones.
TEST_CASE("a GPU that gives wrong answers is refused by operator, and the CPU taken") {
  SetFakeCuda({.pinned = kPinned});
  OpenOptions options{{.backend = Backend::kCuda, .context_tokens = 1024}};
  options.prove = true;
  const std::string told =
      "cuda:0 (fake) is refused: it failed its known answers: compress_kv.state (rows 1): ";
  REQUIRE_FAILS(OpenBest(kBundledModel, options).status(), Unsupported().code(), told);
  options.backend = Backend::kCpu;
  options.prefer_gpu = true;
  absl::StatusOr<std::shared_ptr<Engine>> engine = OpenBest(kBundledModel, options);
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().backend == Backend::kCpu);
  REQUIRE_THAT((*engine)->info().backend_reason,
               Catch::Contains("the CPU: about ") && Catch::Contains(told));
  const absl::StatusOr<EnginePlan> plan = PlanBest(kBundledModel, options);
  REQUIRE_OK(plan);
  REQUIRE(plan->info().backend == Backend::kCpu);
  REQUIRE(GetFakeCudaUse().left == 0);

  // GPUs of another kind are not asked.
  SetFakeCuda({.name = "Hopper", .compute_capability = 90});
  engine = OpenBest(kBundledModel, options);
  REQUIRE_OK(engine);
  REQUIRE(
      absl::StrContains((*engine)->info().backend_reason, "Hopper) has compute capability 9.0"));
}

OpenOptions Preferring(bool prefer_gpu) {
  OpenOptions options{
      {.backend = prefer_gpu ? Backend::kCpu : Backend::kCuda, .context_tokens = 1024}};
  options.prefer_gpu = prefer_gpu;
  options.prove = true;
  return options;
}

TEST_CASE("an illegal instruction in the known-answer test loses the GPU; AUTO takes the CPU") {
  SetFakeCuda({.pinned = kPinned});
  REQUIRE_FAILS(OpenBest(kBundledModel, Preferring(false)).status(), Unsupported().code(),
                "failed its known answers");
  const int64_t of_proof = GetFakeCudaUse().calls;
  for (const bool prefer_gpu : {false, true}) {
    SetFakeCuda({.pinned = kPinned, .failing_call = of_proof / 2, .illegal_instruction = true});
    const auto engine = OpenBest(kBundledModel, Preferring(prefer_gpu));
    REQUIRE(GetFakeCudaUse().failed);
    if (!prefer_gpu) {
      REQUIRE_FAILS(engine.status(), DeviceLost().code(), "an illegal instruction was encountered");
      continue;
    }
    REQUIRE_OK(engine);
    REQUIRE((*engine)->info().backend == Backend::kCpu);
    REQUIRE(absl::StrContains((*engine)->info().backend_reason, "an illegal instruction was"));
    REQUIRE_OK(OpenSession(*engine)->Sync(AnyTokens(5, 1)));
  }
}

TEST_CASE("AUTO takes the CPU if the GPU is lost while the model is loaded") {
  OpenOptions options = Preferring(true);
  // The fake's kernels do nothing: the test's own result in place of the known-answer test's.
  options.known_answers = [](absl::Span<const int32_t>, const std::string&) {
    return ProvenKernels();
  };
  SetFakeCuda({.pinned = kPinned});
  absl::StatusOr<std::shared_ptr<Engine>> engine = OpenBest(kBundledModel, options);
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().backend == Backend::kCuda);
  const int64_t of_open = GetFakeCudaUse().calls;
  engine->reset();
  for (int64_t call = of_open / 8; call < of_open; call += of_open / 8) {
    INFO("call " << call << " of " << of_open);
    SetFakeCuda({.pinned = kPinned, .failing_call = call});
    engine = OpenBest(kBundledModel, options);
    REQUIRE(GetFakeCudaUse().failed);
    REQUIRE_OK(engine);
    REQUIRE((*engine)->info().backend == Backend::kCpu);
    REQUIRE(absl::StrContains((*engine)->info().backend_reason, "not cuda:0"));
    REQUIRE(GetFakeCudaUse().left == 0);
  }
  // Where the CPU cannot, the error has both reasons.
  options.tuning_dir = DSV4_SOURCE_DIR "/kernels/sm12x/tuning/h200";
  SetFakeCuda({.pinned = kPinned, .failing_call = of_open / 2});
  const absl::Status refused = OpenBest(kBundledModel, options).status();
  REQUIRE_FAILS(refused, DeviceLost().code(), "backend cpu has no tuning tables");
}

TEST_CASE("a small integrated GPU leaves experts on disk, and is left alone where nothing fits") {
  SetFakeCuda({.integrated = true, .pinned = kPinned});
  OpenOptions options = Preferring(true);
  options.known_answers = [](absl::Span<const int32_t>, const std::string&) {
    return ProvenKernels();
  };
  const test::TempFolder root;
  std::filesystem::create_directories(root.path() + "/proc");
  options.system_root = root.path();
  const auto set_available = [&](int64_t bytes) {
    root.Write("proc/meminfo",
               absl::StrCat("MemTotal: 134217728 kB\nMemAvailable: ", bytes / 1024, " kB\n"));
  };
  // AUTO may predict the CPU to be faster than a GPU that reads from disk.
  OpenOptions on_gpu = Preferring(false);
  on_gpu.system_root = root.path();
  const auto planned = [&](int64_t bytes) {
    set_available(bytes);
    const absl::StatusOr<EnginePlan> plan = PlanBest(LoudModel(), on_gpu);
    REQUIRE_OK(plan);
    REQUIRE(plan->info().backend == Backend::kCuda);
    return plan->info();
  };
  const EngineInfo all = planned(int64_t{64} << 30);
  REQUIRE(all.residency.on_device == all.residency.all());
  const int64_t whole = all.fullest().total();
  // All of it would fit, and leave the system nothing.
  const EngineInfo part = planned(whole);
  REQUIRE(part.residency.on_disk > 0);
  REQUIRE(part.residency.on_host == 0);
  REQUIRE(part.fullest().total() < whole);
  set_available(1 << 20);
  const auto engine = OpenBest(LoudModel(), options);
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().backend == Backend::kCpu);
  REQUIRE(absl::StrContains((*engine)->info().backend_reason, "cuda:0 (fake) has 1048576 bytes"));
}

// A failing GPU's engine is opened, if it can be, and used twice.
void ExpectLost(int64_t failing_call) {
  INFO("call " << failing_call << " fails");
  SetFakeCuda({.pinned = kPinned, .failing_call = failing_call});
  std::shared_ptr<Engine> engine, second;
  const absl::Status opened = Told(Open(&engine));
  if (opened.ok()) {
    REQUIRE_FAILS(Use(engine), DeviceLost().code(), "cuda:0: ");
    REQUIRE_FAILS(Use(engine), DeviceLost().code(), "cuda:0: ");
  } else {
    REQUIRE_FAILS(opened, DeviceLost().code(), "cuda:0: ");
  }
  REQUIRE_FAILS(Open(&second), DeviceLost().code(), "cuda:0: ");
  engine.reset();
  REQUIRE(GetFakeCudaUse().left == 0);
}

TEST_CASE("a GPU that fails at any call is lost from there on") {
  SetFakeCuda({.pinned = kPinned});
  std::shared_ptr<Engine> engine;
  REQUIRE_OK(Open(&engine));
  const int64_t of_open = GetFakeCudaUse().calls;
  REQUIRE_OK(Use(engine));
  const int64_t of_all = GetFakeCudaUse().calls;
  REQUIRE(GetFakeCudaUse().left > 0);
  engine.reset();
  REQUIRE(GetFakeCudaUse().left == 0);
  // An engine's calls are its weights' and graphs', each like the last.
  for (int64_t call = 0; call < of_open; call += call < 50 ? 1 : 97) ExpectLost(call);
  for (int64_t call = of_open; call < of_all; ++call) ExpectLost(call);
}

TEST_CASE("a GPU without memory for any allocation is told of") {
  // Of an integrated one CUDA does not say how much is free.
  const FakeCuda gpu{.integrated = true, .pinned = kPinned};
  SetFakeCuda(gpu);
  std::shared_ptr<Engine> engine;
  REQUIRE_OK(Open(&engine));
  const int64_t of_open = GetFakeCudaUse().allocations;
  REQUIRE_OK(Use(engine));
  REQUIRE(GetFakeCudaUse().allocations == of_open);
  engine.reset();
  for (int64_t allocation = 0; allocation < of_open; ++allocation) {
    INFO("allocation " << allocation << " of " << of_open);
    FakeCuda full = gpu;
    full.failing_allocation = allocation;
    SetFakeCuda(full);
    const absl::Status opened = Open(&engine);
    const absl::StatusCode expected = absl::StrContains(opened.message(), ": cannot pin ")
                                          ? OutOfHostMemory().code()
                                          : OutOfDeviceMemory().code();
    REQUIRE_FAILS(opened, expected, "cuda:0: cannot ");
    REQUIRE(GetFakeCudaUse().left == 0);
  }
  // The next one finds memory.
  SetFakeCuda(gpu);
  REQUIRE_OK(Open(&engine));
  REQUIRE_OK(Use(engine));
}

TEST_CASE("an integrated GPU's memory is counted once; uploaded weights leave the page cache") {
  EngineOptions options{
      .backend = Backend::kCuda, .context_tokens = 1024, .weight_budgets = {.least = true}};
  const auto plan_of = [&](const ExpertBudgets& budgets) {
    options.weight_budgets = budgets;
    return Engine::Plan(kBundledModel, options);
  };
  SetFakeCuda({.pinned = kPinned});
  dropped_bytes = 0;
  REQUIRE_OK(Engine::Open(kBundledModel, options));
  REQUIRE(dropped_bytes == 0);
  const ResidencyPlan own = plan_of({.least = true})->info().residency;
  REQUIRE(own.on_host == own.all() - own.on_device);

  SetFakeCuda({.integrated = true, .pinned = kPinned});
  const absl::StatusOr<EnginePlan> least = plan_of({.least = true});
  REQUIRE_OK(least);
  const ResidencyPlan& plan = least->info().residency;
  REQUIRE(plan.on_host == 0);
  REQUIRE(plan.on_disk == plan.all() - plan.on_device);
  REQUIRE(plan.host_bytes() > 0);  // for reads
  const int64_t bytes = least->info().fullest().weights + plan.host_bytes();
  REQUIRE(plan_of({.device_bytes = bytes})->info().residency.on_disk == plan.on_disk);
  REQUIRE_FAILS(plan_of({.device_bytes = bytes - 1}).status(), InvalidArgument().code(),
                absl::StrCat("option device_weight_bytes = ", bytes - 1, "; at least ", bytes));
  REQUIRE_FAILS(plan_of({.device_bytes = bytes, .host_bytes = 1}).status(),
                InvalidArgument().code(), "option host_weight_bytes = 1 on an integrated GPU");
  REQUIRE(plan_of({.device_bytes = bytes, .host_bytes = bytes})->info().residency.on_disk ==
          plan.on_disk);
  REQUIRE(plan_of({})->info().residency.on_device == plan.all());

  // All tensors, once.
  options.weight_budgets = {.device_bytes = bytes};
  const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(kBundledModel, options);
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().residency.on_disk == plan.on_disk);
  const auto checkpoint = Checkpoint::Open(kBundledModel);
  REQUIRE_OK(checkpoint);
  REQUIRE(dropped_bytes == (*checkpoint)->total_bytes());
  // Nothing that a download left in the page cache stands in the driver's way.
  dropped_files = 0;
  REQUIRE_OK(plan_of({}));
  REQUIRE(dropped_files == static_cast<int>((*checkpoint)->paths().size()));
  // More than the machine has: a cache for 10^11 tokens.
  options.cache_tokens = int64_t{1} << 37;
  REQUIRE_FAILS(Engine::Open(kBundledModel, options).status(), OutOfDeviceMemory().code(),
                "cuda:0 (fake) has ");
}

}  // namespace
}  // namespace dsv4::test
