// SPDX-License-Identifier: Apache-2.0
// How dsv4-chat ends when it cannot go on: an exit code and the line to print. Thrown to main.
#pragma once

#include <dsv4/dsv4.h>

#include <string>
#include <utility>

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

inline int ExitCodeOf(dsv4_status status) {
  switch (status) {
    case DSV4_OK:
      return kOk;
    case DSV4_ERR_INVALID_ARGUMENT:
      return kUsageError;
    case DSV4_ERR_NOT_FOUND:
    case DSV4_ERR_IO:
    case DSV4_ERR_CORRUPT:
    case DSV4_ERR_UNSUPPORTED:
      return kModelError;
    case DSV4_ERR_OUT_OF_HOST_MEMORY:
    case DSV4_ERR_OUT_OF_DEVICE_MEMORY:
    case DSV4_ERR_OUT_OF_BLOCKS:
      return kMemoryError;
    case DSV4_ERR_DEVICE_LOST:
      return kDeviceLost;
    case DSV4_ERR_CANCELLED:
      return kInterrupted;
    default:
      return kRunTimeError;
  }
}

// Throws a Failure for a status other than OK, with the message of `error`, which it frees. By
// reference: the call that gives the status, another argument, fills it.
inline void Check(dsv4_status status, dsv4_error*& error) {
  if (status == DSV4_OK) return;
  Failure failure{ExitCodeOf(status), dsv4_error_message(error), status};
  dsv4_error_free(std::exchange(error, nullptr));
  // Cancelling is what the user asked for.
  if (status == DSV4_ERR_CANCELLED) failure.message.clear();
  throw failure;
}

}  // namespace chat
