// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: where they are accepted, the tensors are the data section, one
// after the other.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "lib/io/safetensors.h"

namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> file(data, size);
  const auto tensors = dsv4::ParseSafetensors(file, "fuzz");
  if (!tensors.ok()) return 0;
  const absl::Span<const uint8_t> header = dsv4::SafetensorsHeader(file);
  Require(header.data() == data && header.size() <= size);
  const uint8_t* end = data + header.size();
  std::set<std::string> names;
  for (const dsv4::TensorEntry& tensor : *tensors) {
    Require(names.insert(tensor.name).second);
    Require(tensor.data == end && tensor.bytes >= 0 && tensor.bytes <= data + size - end);
    end += tensor.bytes;
    if (tensor.dtype == dsv4::DType::kOther) continue;
    int64_t bytes = dsv4::DTypeBytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) {
      Require(extent >= 0);
      bytes *= extent;
    }
    Require(bytes == tensor.bytes);
  }
  Require(end == data + size);
  return 0;
}
