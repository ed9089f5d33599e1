// SPDX-License-Identifier: Apache-2.0
// Linked into the sessions' tests, has them run on the cuda backend: with graphs, or without where
// DSV4_TEST_GRAPHS is "off".
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "tests/support/bundled_model.h"

namespace dsv4::test {

EngineOptions OnTestedBackend(const EngineOptions& options) {
  if (options.backend != Backend::kCpu) return options;
  EngineOptions cuda = options;
  cuda.backend = Backend::kCuda;
  cuda.threads = 0;
  const char* const graphs = std::getenv("DSV4_TEST_GRAPHS");
  cuda.graphs = graphs == nullptr || absl::string_view(graphs) != "off";
  return cuda;
}

TEST_CASE("the tests beside this one open engines of the cuda backend") {
  REQUIRE(OpenBundled({.context_tokens = 512})->info().backend == Backend::kCuda);
}

}  // namespace dsv4::test
