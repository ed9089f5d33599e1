// SPDX-License-Identifier: Apache-2.0
// A check that a test executable may make before its cases run.
#pragma once

namespace dsv4::test {

// The reason why the executable's tests cannot run here; null if they can. main.cc has a default
// that returns null.
const char* CannotRun();

}  // namespace dsv4::test
