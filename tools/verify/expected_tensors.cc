// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/expected_tensors.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

float HalfToFloat(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Element `i` of the file's bytes, which may be unaligned.
template <class T>
T ElementAt(const uint8_t* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

absl::StatusOr<ExpectedTensors> ExpectedTensors::Open(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ExpectedTensors expected(std::move(file));
  DSV4_ASSIGN_OR_RETURN(std::vector<TensorEntry> entries,
                        ParseSafetensors(expected.file_.bytes(), path));
  for (TensorEntry& entry : entries) expected.entries_[entry.name] = std::move(entry);
  return expected;
}

absl::StatusOr<std::vector<float>> ExpectedTensors::Read(absl::string_view name) const {
  const auto found = entries_.find(std::string(name));
  if (found == entries_.end()) return NotFound(path(), ": no tensor ", name);
  const TensorEntry& entry = found->second;
  std::vector<float> values(static_cast<size_t>(entry.bytes / DTypeBytes(entry.dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (entry.dtype) {
      case DType::kF32:
        values[i] = ElementAt<float>(entry.data, i);
        break;
      case DType::kF16:
        values[i] = HalfToFloat(ElementAt<uint16_t>(entry.data, i));
        break;
      case DType::kI32:
        values[i] = static_cast<float>(ElementAt<int32_t>(entry.data, i));
        break;
      default:
        return Unsupported(path(), ": tensor ", name, " is ", DTypeName(entry.dtype),
                           ", not F32, F16 or I32");
    }
  }
  return values;
}

absl::StatusOr<std::vector<float>> ExpectedTensors::Read(absl::string_view name,
                                                         int64_t elements) const {
  DSV4_ASSIGN_OR_RETURN(std::vector<float> values, Read(name));
  if (static_cast<int64_t>(values.size()) != elements) {
    return Corrupt(path(), ": tensor ", name, " has ", values.size(), " elements; the case gives ",
                   elements);
  }
  return values;
}

}  // namespace dsv4
