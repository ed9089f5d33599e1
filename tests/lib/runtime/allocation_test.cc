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

}  // namespace
}  // namespace dsv4
