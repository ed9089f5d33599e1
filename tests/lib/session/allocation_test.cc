// SPDX-License-Identifier: Apache-2.0
// Counts what a step allocates: nothing, once the session has warmed up.
#include "tests/support/allocation_counter.h"

#include "tests/support/bundled_model.h"

namespace dsv4 {
namespace {

TEST_CASE("a step after warm-up allocates nothing: prefill, greedy and sampled decode") {
  for (const Backend backend : {Backend::kCpu, Backend::kReference}) {
    CAPTURE(BackendName(backend));
    const std::shared_ptr<Engine> engine = test::OpenBundled(
        {.backend = backend, .context_tokens = 2048, .prefill_chunk_tokens = 64, .threads = 2});
    for (const float temperature : {0.0f, 1.0f}) {
      CAPTURE(temperature);
      const std::unique_ptr<Session> session =
          test::OpenSession(engine, {.temperature = temperature, .top_k = 100, .top_p = 0.9f});
      const std::vector<int32_t> prompt = test::AnyTokens(900, 1);
      REQUIRE_OK(session->Sync(prompt));
      REQUIRE_OK(session->Prefill(64, nullptr));
      REQUIRE(test::CountAllocations([&] { (void)session->Prefill(0, nullptr); }) == 0);
      REQUIRE_OK(session->Step());
      bool ok = true;
      REQUIRE(test::CountAllocations([&] {
                for (int i = 0; i < 200; ++i) ok = ok && session->Step().ok();
              }) == 0);
      REQUIRE(ok);
    }
  }
}

TEST_CASE("steps of several sessions with drafts, penalties and log-probabilities, too") {
  const std::shared_ptr<Engine> engine = test::OpenBundled({.context_tokens = 1024,
                                                            .cache_tokens = 4096,
                                                            .prefill_chunk_tokens = 64,
                                                            .threads = 2,
                                                            .max_draft_tokens = 3});
  for (const float temperature : {0.0f, 1.0f}) {
    CAPTURE(temperature);
    const SamplingParams sampling{.temperature = temperature,
                                  .repetition_penalty = 1.2f,
                                  .banned_tokens = engine->eos_tokens(),
                                  .stop_strings = {"no such text"},
                                  .log_probs = 3,
                                  .draft_tokens = 3};
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session*> sessions;
    for (uint32_t i = 0; i < 3; ++i) {
      owned.push_back(test::OpenSession(engine, sampling));
      sessions.push_back(owned.back().get());
      REQUIRE_OK(sessions[i]->Sync(test::AnyTokens(30 + 100 * i, i)));
    }
    std::vector<absl::StatusOr<StepResult>> results(3, StepResult{});
    const auto step = [&](int calls) {
      bool ok = true;
      for (int call = 0; call < calls; ++call) {
        ok = ok && Session::StepAll(sessions, absl::MakeSpan(results)).ok();
        for (const absl::StatusOr<StepResult>& result : results) ok = ok && result.ok();
      }
      return ok;
    };
    REQUIRE(step(20));
    bool ok = false;
    REQUIRE(test::CountAllocations([&] { ok = step(100); }) == 0);
    REQUIRE(ok);
  }
}

}  // namespace
}  // namespace dsv4
