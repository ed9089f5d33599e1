// SPDX-License-Identifier: Apache-2.0
// Early return on a failed absl::Status or absl::StatusOr. Errors inside the library are
// absl::Status; capi/ turns them into dsv4_status codes (capi/error.cc holds the mapping).
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define DSV4_RETURN_IF_ERROR(expr)       \
  do {                                   \
    absl::Status dsv4_status_ = (expr);  \
    if (!dsv4_status_.ok()) [[unlikely]] \
      return dsv4_status_;               \
  } while (false)

#define DSV4_CONCAT_INNER_(a, b) a##b
#define DSV4_CONCAT_(a, b) DSV4_CONCAT_INNER_(a, b)

// DSV4_ASSIGN_OR_RETURN(auto x, F()): declares x from the value of F(), or returns F()'s error.
#define DSV4_ASSIGN_OR_RETURN(lhs, expr)                         \
  auto DSV4_CONCAT_(dsv4_or_, __LINE__) = (expr);                \
  if (!DSV4_CONCAT_(dsv4_or_, __LINE__).ok()) [[unlikely]]       \
    return std::move(DSV4_CONCAT_(dsv4_or_, __LINE__)).status(); \
  lhs = std::move(DSV4_CONCAT_(dsv4_or_, __LINE__)).value()
