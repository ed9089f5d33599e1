// SPDX-License-Identifier: Apache-2.0
// A GPU that does not answer: a stream that never finishes, and calls of the driver that never
// return. The CUDA runtime is a fake (tests/support/fake_cuda_runtime.h). An executable of its own:
// engines stay behind.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/device/device.h"
#include "lib/device/watched_thread.h"
#include "lib/engine/metrics.h"
#include "lib/proof/device_proof.h"
#include "tests/support/bundled_model.h"
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int32_t kPinned = 2;  // so that steps find candidates there
constexpr milliseconds kLimit{400};
constexpr milliseconds kSoon{10'000};  // far below the default of the limit
constexpr char kTold[] = "a device has not answered for 0.4 s (setting step_limit_seconds)";

absl::StatusOr<std::shared_ptr<Engine>> OpenEngine(int32_t drafts = 0) {
  return Engine::Open(kBundledModel, {.backend = Backend::kCuda,
                                      .context_tokens = 1024,
                                      .cache_tokens = 2048,
                                      .max_sessions = 3,
                                      .prefill_chunk_tokens = 128,
                                      .max_draft_tokens = drafts,
                                      .step_limit = kLimit});
}

// Lets the GPU answer after all, and the threads that were left behind see it.
void AnswerAfterAll() {
  FreeFakeCuda();
  const auto begin = Clock::now();
  while (DriverCallsLeft() > 0 && Clock::now() - begin < kSoon) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  REQUIRE(DriverCallsLeft() == 0);
}

// What a session and its engine do once a step has found that the GPU hangs.
void ExpectLeftBehind(std::shared_ptr<Engine> engine, std::unique_ptr<Session> session) {
  REQUIRE(engine->lost());
  const std::vector<int32_t> tokens(session->tokens().begin(), session->tokens().end());
  const auto begin = Clock::now();
  REQUIRE_FAILS(session->Step().status(), DeviceLost().code(), kTold);
  REQUIRE_FAILS(session->Prefill(0, nullptr).status(), DeviceLost().code(), kTold);
  REQUIRE_FAILS(session->Sync(AnyTokens(5, 1)).status(), DeviceLost().code(), kTold);
  REQUIRE_FAILS(session->Fork().status(), DeviceLost().code(), kTold);
  REQUIRE_FAILS(Session::Open(engine, {}).status(), DeviceLost().code(), kTold);
  REQUIRE_FAILS(engine->Suspend(""), DeviceLost().code(), kTold);
  REQUIRE_FAILS(engine->Resume(nullptr), DeviceLost().code(), "only another process can use");
  REQUIRE(session->tokens() == tokens);
  REQUIRE(MetricsOf(*engine).steps.device_lost);
  REQUIRE_FAILS(OpenEngine().status(), DeviceLost().code(), "only another process can use a GPU");
  const std::vector<DeviceListing> listed = Device::ListGpus();
  REQUIRE(listed.size() == 1);
  REQUIRE(absl::StrContains(listed[0].reason, "only another process can use a GPU"));
  session.reset();
  engine.reset();
  REQUIRE(Clock::now() - begin < kSoon);
}

TEST_CASE("a step that a GPU never finishes ends, and all that follow") {
  SetFakeCuda({.pinned = kPinned});
  auto engine = OpenEngine();
  REQUIRE_OK(engine);
  auto session = OpenColdSession(*engine), other = OpenColdSession(*engine);
  for (Session* const one : {session.get(), other.get()}) {
    REQUIRE_OK(one->Sync(AnyTokens(5, 1)));
    REQUIRE_OK(one->Step());
  }
  const int64_t before = static_cast<int64_t>(session->tokens().size());
  HangFakeCuda();
  const auto begin = Clock::now();
  REQUIRE_FAILS(session->Step().status(), DeviceLost().code(), kTold);
  REQUIRE(Clock::now() - begin >= kLimit);
  REQUIRE(Clock::now() - begin < kSoon);
  REQUIRE(static_cast<int64_t>(session->tokens().size()) == before);
  REQUIRE_FAILS(other->Step().status(), DeviceLost().code(), kTold);
  ExpectLeftBehind(*engine, std::move(session));
  other.reset();
  // Should the GPU answer after all, nobody listens.
  AnswerAfterAll();
  std::this_thread::sleep_for(milliseconds(50));
}

TEST_CASE("the other sessions of a step that hangs are told, too") {
  SetFakeCuda({.pinned = kPinned});
  auto engine = OpenEngine();
  REQUIRE_OK(engine);
  auto first = OpenColdSession(*engine), second = OpenColdSession(*engine);
  Session* const sessions[] = {first.get(), second.get()};
  for (Session* const one : sessions) REQUIRE_OK(one->Sync(AnyTokens(5, 1)));
  HangFakeCuda();
  absl::StatusOr<StepResult> results[2];
  REQUIRE_OK(Session::StepAll(sessions, absl::MakeSpan(results)));
  for (const auto& result : results) REQUIRE_FAILS(result.status(), DeviceLost().code(), kTold);
  second.reset();
  ExpectLeftBehind(*engine, std::move(first));
  AnswerAfterAll();
}

// A prompt in two chunks, a step without drafts and one with.
absl::Status Use(Session* session) {
  absl::Status status = session->Sync(AnyTokens(200, 1)).status();
  if (status.ok()) status = session->Prefill(0, nullptr).status();
  for (int i = 0; i < 2 && status.ok(); ++i) status = session->Step().status();
  return status;
}

std::unique_ptr<Session> OpenUser(const std::shared_ptr<Engine>& engine) {
  return OpenColdSession(engine, {.draft_tokens = 2});
}

TEST_CASE("a call of the driver that never returns ends its step, whichever it is") {
  SetFakeCuda({.pinned = kPinned});
  auto engine = OpenEngine(2);
  REQUIRE_OK(engine);
  const int64_t of_open = GetFakeCudaUse().calls;
  auto session = OpenUser(*engine);
  REQUIRE_OK(Use(session.get()));
  const int64_t of_all = GetFakeCudaUse().calls;
  REQUIRE(of_all - of_open > 300);
  session.reset();
  engine->reset();
  // Those of decoding come last.
  int hangs = 0;
  for (int64_t call = of_open; call < of_all; call += call < of_all - 40 ? 37 : 3) {
    CAPTURE(call - of_open);
    SetFakeCuda({.pinned = kPinned, .hanging_call = call});
    engine = OpenEngine(2);
    REQUIRE_OK(engine);
    session = OpenUser(*engine);
    const auto begin = Clock::now();
    REQUIRE_FAILS(Use(session.get()), DeviceLost().code(), kTold);
    REQUIRE(Clock::now() - begin < kSoon);
    ExpectLeftBehind(*std::move(engine), std::move(session));
    AnswerAfterAll();
    ++hangs;
  }
  REQUIRE(hangs > 15);
}

TEST_CASE("without a limit a step waits for as long as it takes") {
  SetFakeCuda({.pinned = kPinned});
  const auto engine = Engine::Open(
      kBundledModel,
      {.backend = Backend::kCuda, .context_tokens = 512, .step_limit = milliseconds(0)});
  REQUIRE_OK(engine);
  auto session = OpenColdSession(*engine);
  REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
  HangFakeCuda();
  std::thread answer([] {
    std::this_thread::sleep_for(3 * kLimit);
    FreeFakeCuda();
  });
  const auto begin = Clock::now();
  const absl::Status status = session->Step().status();
  answer.join();
  REQUIRE_OK(status);
  REQUIRE(Clock::now() - begin >= 3 * kLimit);
}

}  // namespace
}  // namespace dsv4::test
