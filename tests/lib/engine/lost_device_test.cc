// SPDX-License-Identifier: Apache-2.0
// An engine that lost its device in a step is resumed: sessions compute their rows again and
// continue with the same bits. Forward passes are linked to these (--wrap), which fail on command.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/error.h"
#include "lib/engine/metrics.h"
#include "lib/model/model_ranks.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"
#include "tests/support/loud_experts.h"

namespace dsv4 {
namespace {

// Forward passes until the device is lost; below 0: it works. Computed: the lost pass has written
// its rows.
int passes_left = -1;
bool computed = false;

}  // namespace

// The linker's names for ModelRanks::Forward and for what its callers call.
#define FORWARD \
  "_ZN4dsv410ModelRanks7ForwardERKNS_8StepRowsEPKiPKSt8functionIFbvEERKNS_13LogitRequestsE"
absl::Status RealForward(ModelRanks* model, const StepRows& step, const int32_t* tokens,
                         const std::function<bool()>* stop,
                         const LogitRequests& head) asm("__real_" FORWARD);
absl::Status WrapForward(ModelRanks* model, const StepRows& step, const int32_t* tokens,
                         const std::function<bool()>* stop,
                         const LogitRequests& head) asm("__wrap_" FORWARD);

absl::Status WrapForward(ModelRanks* model, const StepRows& step, const int32_t* tokens,
                         const std::function<bool()>* stop, const LogitRequests& head) {
  const bool lost = passes_left == 0;
  if (passes_left > 0) --passes_left;
  if (lost && !computed) return DeviceLost("lost on command");
  const absl::Status status = RealForward(model, step, tokens, stop, head);
  return lost ? DeviceLost("lost on command") : status;
}

namespace {

using test::AnyTokens;
using test::ChatPrompt;
using test::Continue;
using test::LoudModel;
using test::OpenBundled;
using test::OpenColdSession;
using test::RecordedRun;

// Sessions in all that they may be in when a device is lost: in the middle of an answer with
// drafts, a fork of that, in the middle of a prompt, rewound.
struct Sessions {
  Sessions() : engine(OpenBundled({.context_tokens = 1024, .max_draft_tokens = 3}, LoudModel())) {
    const SamplingParams drafting{.draft_tokens = 3};
    for (int i = 0; i < 4; ++i) {
      const bool samples = i == 2;
      all.push_back(OpenColdSession(
          engine, samples ? SamplingParams{.temperature = 1, .seed = 9} : drafting));
    }
    REQUIRE_OK(all[0]->Sync(ChatPrompt(*engine, "What is the capital of France?")));
    for (int i = 0; i < 3; ++i) REQUIRE_OK(all[0]->Step());
    all[1].reset();  // its place is for the fork
    absl::StatusOr<std::unique_ptr<Session>> forked = all[0]->Fork();
    REQUIRE_OK(forked);
    all[1] = *std::move(forked);
    REQUIRE_OK(all[1]->Step());
    REQUIRE_OK(all[2]->Sync(AnyTokens(400, 3)));
    REQUIRE_OK(all[2]->Prefill(300, nullptr));
    REQUIRE_OK(all[3]->Sync(AnyTokens(300, 5)));
    for (int i = 0; i < 5; ++i) REQUIRE_OK(all[3]->Step());
    REQUIRE_OK(all[3]->Rewind(302));
  }

  std::shared_ptr<Engine> engine;
  std::vector<std::unique_ptr<Session>> all;
};

constexpr int64_t kTokens = 12;

TEST_CASE(
    "sessions of an engine that lost its device and was resumed continue with the same bits") {
  std::vector<RecordedRun> expected(4);
  {
    Sessions sessions;
    for (size_t i = 0; i < 4; ++i) REQUIRE(Continue(*sessions.all[i], kTokens, &expected[i]));
  }
  for (size_t loser = 0; loser < 4; ++loser) {
    computed = loser % 2 == 1;
    INFO("session " << loser << (computed ? " after a pass" : " before a pass"));
    Sessions sessions;
    std::vector<RecordedRun> runs(4);
    std::vector<std::vector<int32_t>> before;
    for (const auto& session : sessions.all)
      before.emplace_back(session->tokens().begin(), session->tokens().end());
    passes_left = static_cast<int>(loser);
    REQUIRE(!Continue(*sessions.all[loser], kTokens, &runs[loser]));
    REQUIRE(runs[loser].tokens.size() < kTokens);
    REQUIRE(sessions.engine->lost());
    REQUIRE(MetricsOf(*sessions.engine).steps.device_lost);
    passes_left = -1;
    REQUIRE_OK(sessions.engine->Resume({}));
    REQUIRE(!sessions.engine->lost());
    for (size_t i = 0; i < 4; ++i) {
      INFO("session " << i);
      if (i != loser) REQUIRE(sessions.all[i]->tokens() == before[i]);
      const auto rest = kTokens - static_cast<int64_t>(runs[i].tokens.size());
      REQUIRE(Continue(*sessions.all[i], rest, &runs[i]));
      RequireSame(runs[i], expected[i]);
    }
  }
}

TEST_CASE("a lost engine whose resuming was cancelled, and one that is lost again, is resumed") {
  Sessions sessions;
  RecordedRun run;
  passes_left = 0;
  REQUIRE(!Continue(*sessions.all[0], kTokens, &run));
  passes_left = -1;
  REQUIRE(absl::IsCancelled(sessions.engine->Resume([](int64_t, int64_t) { return false; })));
  REQUIRE(sessions.engine->suspended());
  REQUIRE(IsSuspended(sessions.all[0]->Step().status()));
  REQUIRE_OK(sessions.engine->Resume({}));
  passes_left = 1;
  REQUIRE(!Continue(*sessions.all[0], kTokens, &run));
  passes_left = -1;
  REQUIRE_OK(sessions.engine->Resume({}));
  const size_t had = run.tokens.size();
  REQUIRE(Continue(*sessions.all[0], kTokens - static_cast<int64_t>(had), &run));
  RecordedRun expected;
  Sessions others;
  REQUIRE(Continue(*others.all[0], kTokens, &expected));
  REQUIRE(run.tokens == expected.tokens);
}

}  // namespace
}  // namespace dsv4
