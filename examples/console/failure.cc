// SPDX-License-Identifier: Apache-2.0
#include "examples/console/failure.h"

#include <cstdio>
#include <dsv4/error.hpp>
#include <exception>
#include <new>

namespace chat {
namespace {

int ExitCodeOf(dsv4_status status) {
  switch (status) {
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

}  // namespace

Failure CurrentFailure() {
  try {
    throw;
  } catch (const Failure& failure) {
    return failure;
  } catch (const dsv4::Error& error) {
    // Cancelling is what the user asked for.
    const bool silent = error.code() == DSV4_ERR_CANCELLED;
    return {ExitCodeOf(error.code()), silent ? "" : error.what(), error.code()};
  } catch (const std::bad_alloc&) {
    return {kMemoryError, "out of memory"};
  } catch (const std::exception& error) {
    return {kRunTimeError, error.what()};
  }
}

int ReportFailure(const char* program) {
  const Failure failure = CurrentFailure();
  if (!failure.message.empty()) std::fprintf(stderr, "%s: %s\n", program, failure.message.c_str());
  if (failure.exit_code == kUsageError) std::fprintf(stderr, "See %s --help.\n", program);
  return failure.exit_code;
}

}  // namespace chat
