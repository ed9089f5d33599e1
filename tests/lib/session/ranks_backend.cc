// SPDX-License-Identifier: Apache-2.0
// Linked into the sessions' tests, has them run on two devices, which are parts of the CPU.
#include "tests/support/bundled_model.h"

namespace dsv4::test {

EngineOptions OnTestedBackend(const EngineOptions& options) {
  EngineOptions on_two = options;
  if (on_two.devices.empty()) on_two.devices = {0, 1};
  return on_two;
}

TEST_CASE("the tests of this program open engines on two devices") {
  REQUIRE(OpenBundled({.context_tokens = 512})->model().ranks() == 2);
}

}  // namespace dsv4::test
