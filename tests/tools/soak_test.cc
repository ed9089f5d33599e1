// SPDX-License-Identifier: Apache-2.0
// What dsv4-verify soak finds: nothing in a sound engine, and a model that changes under it.
#include "tools/verify/soak.h"

#include <optional>
#include <vector>

#include "tests/support/bundled_model.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

std::shared_ptr<Engine> OpenFor(const SoakOptions& options, std::optional<RowFormat> rows = {}) {
  EngineOptions engine = Soak::EngineOptionsFor(options);
  engine.threads = 2;
  engine.cache_format = rows;
  const auto opened = Engine::Open(kBundledModel, engine);
  REQUIRE_OK(opened);
  return *opened;
}

TEST_CASE("sessions that are forked, saved, cancelled and drafted for say what straight ones say") {
  const SoakOptions options{.tokens = 400, .sessions = 4, .prompts = 3, .output = 40};
  // The rows that tests of sessions have least of.
  const std::shared_ptr<Engine> engine = OpenFor(options, RowFormat::kFp8PerTensor);
  Soak soak(engine, options);
  REQUIRE_OK(soak.Prepare());
  soak.Run();
  const SoakCounts counts = soak.counts();
  INFO((soak.findings().empty() ? "" : soak.findings().front()));
  CHECK(counts.different == 0);
  CHECK(counts.failed == 0);
  CHECK(counts.tokens >= options.tokens);
  CHECK(counts.forks > 0);
  CHECK(counts.rewinds > 0);
  CHECK(counts.loads > 0);
  CHECK(counts.syncs > 0);
  CHECK(counts.cancelled > 0);
  CHECK(counts.reused_tokens > 0);
  CHECK(engine->cache().use().sequences == 0);
}

TEST_CASE("a bit that flips in a weight after the straight runs is found") {
  const SoakOptions options{.tokens = 200, .sessions = 2, .prompts = 2, .output = 30};
  const std::shared_ptr<Engine> engine = OpenFor(options);
  Soak soak(engine, options);
  REQUIRE_OK(soak.Prepare());
  Bf16Weight& head = engine->views(0).head;
  std::vector<uint16_t> flipped(head.data, head.data + head.n * head.k);
  flipped[static_cast<size_t>(700 * head.k)] ^= 0x4000;  // the highest bit of an exponent
  head.data = flipped.data();
  soak.Run();
  CHECK(soak.counts().different > 0);
  REQUIRE_FALSE(soak.findings().empty());
  CHECK(soak.findings().front().find("in the straight run") != std::string::npos);
}

}  // namespace
}  // namespace dsv4::test
