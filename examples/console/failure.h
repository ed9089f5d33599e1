// SPDX-License-Identifier: Apache-2.0
// How dsv4-chat ends when it cannot continue: an exit code and the line to print. Thrown to main,
// like the library's errors.
#pragma once

#include <dsv4/error.h>

#include <string>

namespace chat {

enum ExitCode {
  kOk = 0,
  kRunTimeError = 1,
  kUsageError = 2,
  kModelError = 3,
  kMemoryError = 4,
  kDeviceLost = 5,
  kInterrupted = 130,
};

struct Failure {
  int exit_code;
  std::string message;  // one line; empty: end silently
  dsv4_status status = DSV4_OK;
};

// Called in a catch block: converts the exception.
Failure CurrentFailure();
// Called in a catch block of `program`'s main: reports the exception on standard error and returns
// the exit code.
int ReportFailure(const char* program);

}  // namespace chat
