// SPDX-License-Identifier: Apache-2.0
// The main function of every Catch2 test executable.
#define CATCH_CONFIG_RUNNER
#include "tests/support/main.h"

#include <cstdio>

#include "tests/support/catch.h"

namespace dsv4::test {

__attribute__((weak)) const char* CannotRun() { return nullptr; }

}  // namespace dsv4::test

int main(int argc, char** argv) {
  if (const char* reason = dsv4::test::CannotRun()) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
