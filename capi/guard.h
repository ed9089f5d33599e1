// SPDX-License-Identifier: Apache-2.0
// Guard runs the body of a C function that can fail. It converts an absl::Status or an exception to
// a status code and an owned error. The only other `catch (...)` is in lib/base/contained.h.
#pragma once

#include <dsv4/error.h>

#include <new>
#include <utility>

#include "absl/status/status.h"
#include "lib/base/float_mode.h"

namespace dsv4::capi {

// Returns the public code of `status`. If `error` is not null, *error receives an error object with
// the message, owned by the caller. REQUIRES: `status` is not OK.
dsv4_status Fail(const absl::Status& status, dsv4_error** error);

// Fail for OUT_OF_HOST_MEMORY, without allocating.
dsv4_status FailOutOfMemory(dsv4_error** error) noexcept;

// `body` returns absl::Status. It has the default floating-point mode.
template <class Body>
dsv4_status Guard(dsv4_error** error, Body&& body) noexcept {
  const DefaultFloatMode floats;
  if (error != nullptr) *error = nullptr;
  try {
    try {
      const absl::Status status = std::forward<Body>(body)();
      return status.ok() ? DSV4_OK : Fail(status, error);
    } catch (const std::bad_alloc&) {
      return FailOutOfMemory(error);
    } catch (...) {
      return Fail(absl::InternalError("an exception reached the C interface"), error);
    }
  } catch (...) {
    // Fail ran out of memory.
    return FailOutOfMemory(error);
  }
}

}  // namespace dsv4::capi
