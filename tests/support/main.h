// SPDX-License-Identifier: Apache-2.0
// What a test executable may say before its cases run.
#pragma once

namespace dsv4::test {

// Why none of the executable's tests can run here; null when they can, which is what main.cc has
// for executables that do not define it.
const char* CannotRun();

}  // namespace dsv4::test
