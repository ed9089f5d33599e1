// SPDX-License-Identifier: Apache-2.0
// Tables that map values of the C interface's enums to enums of the library.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"

namespace dsv4::capi {

template <class T>
struct EnumValue {
  int32_t value;  // "DSV4_..."
  T ours;
};

// The library's enum for `value`. Errors: InvalidArgument, naming the argument `name`, if the table
// does not have the value. `prefix`: what the names of valid values begin with, for the message.
template <class T, size_t count>
absl::StatusOr<T> EnumFrom(const EnumValue<T> (&table)[count], int32_t value,
                           absl::string_view name, absl::string_view prefix) {
  for (const EnumValue<T>& row : table) {
    if (row.value == value) return row.ours;
  }
  return InvalidValue(name, " is ", value, "; expected a ", prefix, " value");
}

// The value of the first row with `ours`. If there is none, the value of the first row.
template <class T, size_t count>
constexpr int32_t EnumTo(const EnumValue<T> (&table)[count], T ours) {
  for (const EnumValue<T>& row : table) {
    if (row.ours == ours) return row.value;
  }
  return table[0].value;
}

}  // namespace dsv4::capi
