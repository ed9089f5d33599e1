// SPDX-License-Identifier: Apache-2.0
// The struct rule of <dsv4/abi.h>: copies option structs in and result structs out for callers
// built against any version of the headers. Also checks of arguments that several functions share.
#pragma once

#include <dsv4/chat.h>
#include <dsv4/engine.h>
#include <dsv4/parser.h>
#include <dsv4/sampling.h>
#include <dsv4/session.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"

namespace dsv4::capi {

// The size of a struct in the first release that had it. Before release 1.0 it is the whole struct.
// The first field that is appended after a release makes its struct an overload here, with the
// size that the release had.
template <class Struct>
constexpr uint32_t FirstSize(const Struct*) {
  return sizeof(Struct);
}

// A larger size means that the struct is not initialised.
inline constexpr uint32_t kMaxStructBytes = 4096;

// Returns the size that the caller's version of the struct has. `name`: the argument's name, for
// error messages. Errors: InvalidArgument.
template <class Struct>
absl::StatusOr<uint32_t> StructSize(const Struct* given, absl::string_view name) {
  constexpr uint32_t kFirst = FirstSize(static_cast<const Struct*>(nullptr));
  static_assert(kFirst <= sizeof(Struct));
  if (given == nullptr) return InvalidValue(name, " is NULL");
  uint32_t size;
  std::memcpy(&size, given, sizeof size);
  if (size < kFirst || size > kMaxStructBytes)
    return InvalidValue(absl::StrCat(name, ".struct_size"), " is ", size, "; expected ", kFirst,
                        " to ", kMaxStructBytes);
  return size;
}

// Returns a copy of the caller's struct. Fields beyond its size are 0. Errors: those of StructSize;
// Unsupported if a field is set that this library does not know.
template <class Struct>
absl::StatusOr<Struct> CopyIn(const Struct* given, absl::string_view name) {
  absl::StatusOr<uint32_t> size = StructSize(given, name);
  if (!size.ok()) return size.status();
  const auto* bytes = reinterpret_cast<const uint8_t*>(given);
  for (uint32_t i = sizeof(Struct); i < *size; ++i) {
    if (bytes[i] != 0)
      return WithArgument(
          Unsupported(name, " sets a field at byte ", i, ", which this library (struct_size ",
                      sizeof(Struct), ") does not know"),
          name);
  }
  Struct copy = {};
  std::memcpy(&copy, given, std::min<size_t>(*size, sizeof(Struct)));
  return copy;
}

// Fills the caller's struct up to its size. Does not change the size. Fields that this library does
// not know become 0. REQUIRES: StructSize(given) succeeded.
template <class Struct>
void CopyOut(const Struct& value, Struct* given) {
  uint32_t size;
  std::memcpy(&size, given, sizeof size);
  auto* bytes = reinterpret_cast<uint8_t*>(given);
  const size_t known = std::min<size_t>(size, sizeof(Struct));
  std::memcpy(bytes + sizeof size, reinterpret_cast<const uint8_t*>(&value) + sizeof size,
              known - sizeof size);
  std::memset(bytes + known, 0, size - known);
}

// Fills the caller's array of structs with the first `capacity` of `values`, as `from` converts
// them. Its structs may be longer or shorter than this library's, all alike. REQUIRES: CheckArray
// accepts the array. Errors: those of StructSize.
template <class Values, class Convert, class Struct>
absl::Status CopyStructsOut(const Values& values, const Convert& from, Struct* given,
                            size_t capacity, absl::string_view name) {
  auto* bytes = reinterpret_cast<uint8_t*>(given);
  uint32_t size = 0;
  const auto at = [&](size_t i) { return reinterpret_cast<Struct*>(bytes + i * size); };
  const size_t filled = std::min<size_t>(capacity, values.size());
  for (size_t i = 0; i < filled; ++i) {
    const std::string element = absl::StrCat(name, "[", i, "]");
    const absl::StatusOr<uint32_t> own = StructSize(at(i), element);
    if (!own.ok()) return own.status();
    if (i == 0) size = *own;
    if (*own != size) {
      return InvalidValue(absl::StrCat(element, ".struct_size"), " is ", *own, "; ", name,
                          "[0]'s is ", size);
    }
  }
  for (size_t i = 0; i < filled; ++i) CopyOut(from(values[i]), at(i));
  return absl::OkStatus();
}

template <class T>
absl::Status NotNull(const T* pointer, absl::string_view name) {
  return pointer != nullptr ? absl::OkStatus() : InvalidValue(name, " is NULL");
}

inline absl::Status ReservedIsZero(int64_t value, absl::string_view name) {
  return value == 0 ? absl::OkStatus() : InvalidValue(name, " is ", value, "; expected 0");
}

inline absl::StatusOr<bool> BoolFrom(int32_t value, absl::string_view name) {
  if (value != 0 && value != 1) return InvalidValue(name, " is ", value, "; expected 0 or 1");
  return value == 1;
}

// Checks an array argument. NULL is accepted if `count` is 0.
template <class T>
absl::Status CheckArray(const T* data, size_t count, absl::string_view name) {
  if (data == nullptr && count > 0) return InvalidValue(name, " is NULL, but its size is ", count);
  if (count > static_cast<size_t>(PTRDIFF_MAX) / sizeof(T))
    return WithArgument(
        InvalidArgument("the size of ", name, " is ", count, ", more than memory holds"), name);
  return absl::OkStatus();
}

// Checks the caller's array for results, and the pointer that receives the number of results.
template <class T>
absl::Status CheckArrayOut(const T* out, size_t capacity, const size_t* needed,
                           absl::string_view name) {
  const absl::Status checked = CheckArray(out, capacity, name);
  return checked.ok() ? NotNull(needed, "needed") : checked;
}

// Writes the first `capacity` of `values` to `out`, and their total number to *needed.
template <class Values, class T>
void CopyArrayOut(const Values& values, T* out, size_t capacity, size_t* needed) {
  *needed = values.size();
  std::copy_n(values.data(), std::min(capacity, values.size()), out);
}

}  // namespace dsv4::capi
