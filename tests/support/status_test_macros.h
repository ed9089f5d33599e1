// SPDX-License-Identifier: Apache-2.0
// Catch2 checks on absl::Status and absl::StatusOr that print the message on failure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/support/catch.h"

namespace dsv4::test {

inline const absl::Status& StatusOf(const absl::Status& s) { return s; }
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& s) {
  return s.status();
}

}  // namespace dsv4::test

#define REQUIRE_OK(expr)                                         \
  do {                                                           \
    const absl::Status status_ = ::dsv4::test::StatusOf((expr)); \
    INFO(#expr ": " << status_.ToString());                      \
    REQUIRE(status_.ok());                                       \
  } while (false)

// The expression fails with this absl::StatusCode and a message that contains `text`.
#define REQUIRE_FAILS(expr, expected_code, text)                             \
  do {                                                                       \
    const absl::Status status_ = ::dsv4::test::StatusOf((expr));             \
    INFO(#expr ": " << status_.ToString());                                  \
    REQUIRE(status_.code() == (expected_code));                              \
    REQUIRE(std::string(status_.message()).find(text) != std::string::npos); \
  } while (false)
