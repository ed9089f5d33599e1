// SPDX-License-Identifier: Apache-2.0
// Engines whose steps of one row have step programs give the bits of engines without: on the
// emulated GPU, with so few multiprocessors that a narrow model fills them.
#include <string>
#include <vector>

#include "lib/io/mapped_file.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

constexpr int32_t kMultiprocessors = 8;

// Flash's config.json, with layers of each kind; narrow, except that the output projections have as
// many K slices as a block of a program has warps.
std::string NarrowConfig() {
  const absl::StatusOr<std::string> flash =
      ReadFile(DSV4_SOURCE_DIR "/benchmarks/e2e/flash/config.json", 1 << 20);
  REQUIRE_OK(flash);
  std::string config = *flash;
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"num_hidden_layers", "3"},
                                                        {"num_hash_layers", "1"},
                                                        {"compress_ratios", "[0, 4, 128, 0]"},
                                                        {"hidden_size", "256"},
                                                        {"moe_intermediate_size", "128"},
                                                        {"n_routed_experts", "16"},
                                                        {"num_experts_per_tok", "4"},
                                                        {"num_attention_heads", "8"},
                                                        {"o_groups", "8"},
                                                        {"o_lora_rank", "256"},
                                                        {"q_lora_rank", "256"},
                                                        {"index_n_heads", "8"},
                                                        {"vocab_size", "2048"}}) {
    config = EditedJson(config, key, value);
  }
  return config;
}

struct Run {
  std::vector<float> logits;  // of all steps
  size_t launches = 0;        // that the engine recorded
};

Run RunSteps(const std::string& folder, bool side_by_side) {
  SetFakeCuda({.name = "emulated",
               .multiprocessors = kMultiprocessors,
               .side_by_side = side_by_side,
               .works = true});
  TakeFakeLaunches();
  Run run;
  EngineOptions options{.backend = Backend::kCuda, .context_tokens = 512, .synthetic_layers = 3};
  options.step_limit = std::chrono::hours(1);
  const auto engine = Engine::Open(folder, options);
  REQUIRE_OK(engine);
  for (const FakeLaunch& launch : TakeFakeLaunches()) run.launches += launch.recorded ? 1 : 0;
  const std::unique_ptr<Session> session = OpenColdSession(*engine);
  REQUIRE_OK(session->Sync(AnyTokens(5, 1)));
  // Compressed rows end within these steps.
  for (int i = 0; i < 6; ++i) {
    REQUIRE_OK(session->Step());
    run.logits.insert(run.logits.end(), session->logits().begin(), session->logits().end());
  }
  return run;
}

TEST_CASE("steps with programs have the bits of steps without") {
  const TempFolder folder;
  folder.Write("config.json", NarrowConfig());
  // Where processes share multiprocessors, blocks must not wait for each other: no programs.
  const Run without = RunSteps(folder.path(), true), with = RunSteps(folder.path(), false);
  REQUIRE(with.launches < without.launches);
  REQUIRE(with.logits == without.logits);
}

}  // namespace
}  // namespace dsv4::test
