// SPDX-License-Identifier: Apache-2.0
// An operator that fails its known answers: the engine runs the second set of kernels, and says so.
// Where a GPU has no block-scaled MMA both sets compute alike, so that no bit may change.
#include "lib/proof/open_best.h"
#include "tests/support/bundled_model.h"

namespace dsv4::test {
namespace {

TEST_CASE("an engine whose first kernels failed runs the second set") {
  const auto first = OpenBundled({.context_tokens = 1024});
  OpenOptions options{OnTestedBackend({.context_tokens = 1024})};
  options.prefer_gpu = options.any_gpu = options.prove = true;
  options.known_answers = [](absl::Span<const int32_t>,
                             const std::string&) -> absl::StatusOr<ProvenKernels> {
    return ProvenKernels{KernelSet::kSecond, "expert_ffn of 3 rows: planted"};
  };
  const auto second = OpenBest(kBundledModel, options);
  REQUIRE_OK(second);
  REQUIRE((*second)->info().backend == Backend::kCuda);
  INFO((*second)->info().backend_reason);
  REQUIRE((*second)->info().backend_reason.find("expert_ffn of 3 rows: planted") !=
          std::string::npos);
  const auto traits = (*second)->device().traits();
  if (traits.compute_capability >= 120) {
    WARN("skipped: the sets' bits are not compared, because this GPU has block-scaled MMA");
    return;
  }
  REQUIRE(LogitsOfSteps(*second) == LogitsOfSteps(first));
}

}  // namespace
}  // namespace dsv4::test
