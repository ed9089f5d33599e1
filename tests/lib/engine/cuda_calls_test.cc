// SPDX-License-Identifier: Apache-2.0
// What steps on a GPU ask of it: replays of graphs, one wait for the tokens of each, and no memory.
#include "lib/device/cuda_runtime.h"

#include "tests/support/bundled_model.h"
#include "tests/support/cuda_calls.h"

namespace dsv4::test {
namespace {

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  return static_cast<int64_t>(free);
}

// Free memory tells of what CUDA takes by itself, as for a kernel that is loaded when it is first
// launched. So the engine must be its process's first.
void ExpectStepsToTakeNothing(bool graphs) {
  constexpr int kSteps = 20;
  const auto engine = OpenBundled({.backend = Backend::kCuda,
                                   .context_tokens = 2048,
                                   .cache_tokens = 8192,
                                   .prefill_chunk_tokens = 512,
                                   .graphs = graphs});
  for (const int64_t length : {1200, 300, 200, 100, 70, 40, 5}) {
    CAPTURE(length);
    const auto session = OpenColdSession(engine, {.banned_tokens = engine->eos_tokens()});
    REQUIRE_OK(session->Sync(AnyTokens(length, 1)));
    const int64_t free = FreeBytes();
    bool ok = false;
    // The first step has the prompt's logits.
    CudaCalls calls =
        CountCudaCalls([&] { ok = session->Prefill(0, nullptr).ok() && session->Step().ok(); });
    REQUIRE(ok);
    REQUIRE(calls.allocations == 0);
    REQUIRE(calls.graphs == 0);
    calls = CountCudaCalls([&] {
      for (int i = 0; i < kSteps; ++i) ok = ok && session->Step().ok();
    });
    REQUIRE(ok);
    REQUIRE(calls.allocations == 0);
    REQUIRE(calls.graphs == 0);
    // Of some steps all logits are brought over, for the alarms.
    REQUIRE(calls.waits >= kSteps);
    REQUIRE(calls.waits <= kSteps + kSteps / 10);
    REQUIRE(calls.replays == (graphs ? kSteps : 0));
    REQUIRE((calls.launches == 0) == graphs);
    REQUIRE(FreeBytes() == free);
  }
}

TEST_CASE("a step on a GPU takes no memory, and waits once, for its token") {
  ExpectStepsToTakeNothing(true);
}

TEST_CASE("a step without graphs allocates nothing", "[without_graphs]") {
  ExpectStepsToTakeNothing(false);
}

// 24 sessions that verify 3 drafts each: up to 96 rows. Each pass waits once, for its tokens or
// drafts.
TEST_CASE("steps of many sessions that verify drafts replay graphs, too") {
  constexpr size_t kSessions = 24;
  const auto engine = OpenBundled({.backend = Backend::kCuda,
                                   .context_tokens = 512,
                                   .cache_tokens = 512 * kSessions,
                                   .max_sessions = kSessions,
                                   .max_draft_tokens = 3});
  std::vector<std::unique_ptr<Session>> owned;
  std::vector<Session*> sessions;
  for (size_t i = 0; i < kSessions; ++i) {
    owned.push_back(
        OpenColdSession(engine, {.banned_tokens = engine->eos_tokens(), .draft_tokens = 3}));
    sessions.push_back(owned.back().get());
    REQUIRE_OK(
        sessions[i]->Sync(AnyTokens(20 + static_cast<int64_t>(i), static_cast<uint32_t>(i))));
    REQUIRE_OK(sessions[i]->Prefill(0, nullptr));
  }
  const int64_t free = FreeBytes();
  std::vector<absl::StatusOr<StepResult>> results(kSessions, StepResult{});
  bool ok = true;
  const CudaCalls calls = CountCudaCalls([&] {
    for (int call = 0; call < 20; ++call) {
      ok = ok && Session::StepAll(sessions, absl::MakeSpan(results)).ok();
      for (const absl::StatusOr<StepResult>& result : results) ok = ok && result.ok();
    }
  });
  REQUIRE(ok);
  REQUIRE(calls.allocations == 0);
  REQUIRE(calls.graphs == 0);
  // A step gives a session 4 tokens at most, of the 20, by two graphs.
  REQUIRE(calls.replays >= 2 * 20 / 4);
  // A session comes once at most to a position whose logits are brought over for the alarms.
  REQUIRE(calls.waits >= calls.replays);
  REQUIRE(calls.waits <= calls.replays + static_cast<int64_t>(kSessions));
  REQUIRE(FreeBytes() == free);
}

// The passes of a draft and the choice of its tokens are one graph, the verification of the last
// one's another.
void ExpectTwoGraphsAStep(const std::string& folder, int32_t drafts) {
  constexpr int kSteps = 5;  // fewer than it takes to see whether drafts pay
  for (const float temperature : {0.0f, 0.7f}) {
    const auto engine = OpenBundled(
        {.backend = Backend::kCuda, .context_tokens = 512, .max_draft_tokens = drafts}, folder);
    const auto session = OpenColdSession(engine, {.temperature = temperature,
                                                  .seed = 1,
                                                  .banned_tokens = engine->eos_tokens(),
                                                  .draft_tokens = drafts});
    REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
    REQUIRE_OK(session->Step());
    bool ok = true;
    const CudaCalls calls = CountCudaCalls([&] {
      while (ok && session->stats().speculation.steps() < kSteps) ok = session->Step().ok();
    });
    REQUIRE(ok);
    REQUIRE(session->stats().speculation.drafted == kSteps * drafts);
    REQUIRE(calls.allocations == 0);
    REQUIRE(calls.graphs == 0);
    REQUIRE(calls.replays == 2 * kSteps);
    REQUIRE(calls.waits == 2 * kSteps);
  }
}

TEST_CASE("a step that verifies drafts of an MTP block and makes more is two graphs") {
  ExpectTwoGraphsAStep(kBundledModel, 3);
}

TEST_CASE("a step that verifies drafts of a DSpark drafter and makes more is two graphs") {
  ExpectTwoGraphsAStep(kBundledDspark, 5);
}

TEST_CASE("the counter of CUDA calls counts") {
  const CudaCalls calls = CountCudaCalls([] {
    const auto engine = OpenBundled({.backend = Backend::kCuda, .context_tokens = 512});
    const auto session = OpenSession(engine);
    REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
    REQUIRE_OK(session->Step());
  });
  REQUIRE(calls.allocations > 0);
  REQUIRE(calls.graphs > 0);
  REQUIRE(calls.replays > 0);
  REQUIRE(calls.launches > 0);
  REQUIRE(calls.waits > 0);
}

}  // namespace
}  // namespace dsv4::test
