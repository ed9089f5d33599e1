// SPDX-License-Identifier: Apache-2.0
// Values of the C interface's enums and what the library has for them, as tables of both.
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

// The library's for `value`, which is the argument `name`. InvalidArgument for a value that the
// table does not have; `prefix` begins the names of those that it has.
template <class T, size_t count>
absl::StatusOr<T> EnumFrom(const EnumValue<T> (&table)[count], int32_t value,
                           absl::string_view name, absl::string_view prefix) {
  for (const EnumValue<T>& row : table) {
    if (row.value == value) return row.ours;
  }
  return InvalidValue(name, " is ", value, "; expected a ", prefix, " value");
}

// The value of the first row with `ours`; of the first row where none has it.
template <class T, size_t count>
constexpr int32_t EnumTo(const EnumValue<T> (&table)[count], T ours) {
  for (const EnumValue<T>& row : table) {
    if (row.ours == ours) return row.value;
  }
  return table[0].value;
}

}  // namespace dsv4::capi
