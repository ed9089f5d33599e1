// SPDX-License-Identifier: Apache-2.0
// Where an exception must not pass: code whose caller holds what others wait for. Memory that runs
// out, even for the words of a status, becomes a status that needs no memory.
#pragma once

#include <new>
#include <utility>

#include "absl/status/status.h"

namespace dsv4 {

// Statuses without words, which allocate nothing. capi/error.cc has words for them.
inline absl::Status NoHostMemory() {
  return absl::Status(absl::StatusCode::kResourceExhausted, absl::string_view());
}
inline absl::Status UnknownException() {
  return absl::Status(absl::StatusCode::kInternal, absl::string_view());
}

// What `body` returns, an absl::Status, or what it throws as one.
template <class Body>
absl::Status Contained(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return NoHostMemory();
  } catch (...) {
    // Of a host's callback: the library itself throws nothing else.
    return UnknownException();
  }
}

}  // namespace dsv4
