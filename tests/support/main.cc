// SPDX-License-Identifier: Apache-2.0
// The main function of every Catch2 test executable.
#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
