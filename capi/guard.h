// SPDX-License-Identifier: Apache-2.0
// The frame of every fallible C function: runs its body, turns an absl::Status or an exception into
// a status code and an owned error. The only place that catches.
#pragma once

#include <dsv4/error.h>

#include <new>
#include <utility>

#include "absl/status/status.h"

namespace dsv4::capi {

// The public code of `status`, and through `error`, when not null, an owned error with its message.
// `status` is not OK.
dsv4_status Fail(const absl::Status& status, dsv4_error** error);

// The same without allocating.
dsv4_status FailOutOfMemory(dsv4_error** error) noexcept;

// `body` returns absl::Status.
template <class Body>
dsv4_status Guard(dsv4_error** error, Body&& body) noexcept {
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
    // Only building the error object can have failed.
    return FailOutOfMemory(error);
  }
}

}  // namespace dsv4::capi
