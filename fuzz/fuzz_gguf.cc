// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: where they are accepted, tensors lie in the file without overlaps, and
// every value can be read.
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"

namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = dsv4::ParseGguf({data, size}, "fuzz");
  if (!file.ok()) return 0;
  Require(file->header_bytes >= 0 && file->header_bytes <= static_cast<int64_t>(size));
  std::set<absl::string_view> names;
  for (const dsv4::GgufKey& key : file->keys) {
    Require(names.insert(key.name).second);
    const dsv4::GgufValue& value = key.value;
    Require(value.bytes.size() <= size);
    if (value.type == dsv4::GgufType::kArray) {
      const auto strings = value.AsStrings();
      Require(!strings || strings->size() == value.count);
      const auto integers = value.AsInt64s();
      Require(!integers || integers->size() == value.count);
      static_cast<void>(value.AsDoubles());
    } else {
      Require(value.AsString().has_value() == (value.type == dsv4::GgufType::kString));
      static_cast<void>(value.AsInt64());
      static_cast<void>(value.AsDouble());
    }
  }
  names.clear();
  std::map<const uint8_t*, const uint8_t*> places;
  for (const dsv4::GgufTensor& tensor : file->tensors) {
    Require(names.insert(tensor.name).second);
    Require(tensor.data >= data + file->header_bytes && tensor.bytes > 0 &&
            tensor.bytes <= data + size - tensor.data);
    Require(places.emplace(tensor.data, tensor.data + tensor.bytes).second);
    const auto type = dsv4::BlockTypeOfGguf(tensor.type);
    if (!type) continue;
    const int64_t row = tensor.dims.front();
    if (row > 1 << 16) continue;
    float* const values = new float[static_cast<size_t>(row)];
    dsv4::LoadBlocks(*type, tensor.data, row, values);
    delete[] values;
  }
  const uint8_t* end = data;
  for (const auto& [begin, tensor_end] : places) {
    Require(begin >= end);
    end = tensor_end;
  }
  static_cast<void>(dsv4::GgufRoleOf(*file));
  return 0;
}
