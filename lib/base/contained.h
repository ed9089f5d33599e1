// SPDX-License-Identifier: Apache-2.0
// Stops exceptions in code whose caller must release something that other threads wait for. If
// memory runs out, even for a status message, the result is a status that needs no memory.
#pragma once

#include <new>
#include <utility>

#include "absl/status/status.h"

namespace dsv4 {

// Statuses without a message, which allocate nothing. capi/error.cc adds the messages.
inline absl::Status NoHostMemory() {
  return absl::Status(absl::StatusCode::kResourceExhausted, absl::string_view());
}
inline absl::Status UnknownException() {
  return absl::Status(absl::StatusCode::kInternal, absl::string_view());
}

// Returns the absl::Status that `body` returns. An exception becomes a status.
template <class Body>
absl::Status Contained(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return NoHostMemory();
  } catch (...) {
    // Thrown by a host's callback: the library itself throws nothing else.
    return UnknownException();
  }
}

}  // namespace dsv4
