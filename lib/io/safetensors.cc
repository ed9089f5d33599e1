// SPDX-License-Identifier: Apache-2.0
#include "lib/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_join.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/git_lfs.h"
#include "lib/io/simdjson_use.h"

namespace dsv4 {
namespace {

using simdjson::dom::element;

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMaxDims = 16;

// One tensor of the header; offsets are relative to the data section.
struct Described {
  TensorEntry entry;
  int64_t begin = 0, end = 0;
};

absl::Status ReadInts(const element& value, std::vector<int64_t>* out) {
  simdjson::dom::array list;
  if (value.get(list)) return Corrupt("is not a list");
  for (const element item : list) {
    int64_t number = 0;
    if (item.get(number) || number < 0)
      return Corrupt("holds something other than sizes of 0 and up");
    out->push_back(number);
  }
  return absl::OkStatus();
}

// Reads one header entry; messages complete "tensor NAME ...".
absl::Status ReadEntry(const element& value, Described* out) {
  simdjson::dom::object fields;
  if (value.get(fields)) return Corrupt("is not described by a JSON object");
  int dtypes = 0, shapes = 0, offset_lists = 0;
  std::vector<int64_t> offsets;
  for (const auto [key, field] : fields) {
    if (key == "dtype") {
      ++dtypes;
      std::string_view text;
      if (field.get(text)) return Corrupt("has a dtype that is not a string");
      const absl::string_view name(text.data(), text.size());
      const std::optional<DType> dtype = DTypeFromName(name);
      out->entry.dtype = dtype.value_or(DType::kOther);
      if (!dtype) out->entry.other_dtype = std::string(name);
    } else if (key == "shape") {
      ++shapes;
      const absl::Status read = ReadInts(field, &out->entry.shape);
      if (!read.ok()) return Corrupt("has a shape that ", read.message());
    } else if (key == "data_offsets") {
      ++offset_lists;
      const absl::Status read = ReadInts(field, &offsets);
      if (!read.ok()) return Corrupt("has data_offsets that ", read.message());
    }
  }
  if (dtypes != 1 || shapes != 1 || offset_lists != 1) {
    return Corrupt("needs exactly one each of dtype, shape and data_offsets");
  }
  if (offsets.size() != 2) return Corrupt("has ", offsets.size(), " data_offsets instead of 2");
  if (out->entry.shape.size() > kMaxDims) {
    return Corrupt("has ", out->entry.shape.size(), " dimensions; at most ", kMaxDims, " are read");
  }
  out->begin = offsets[0];
  out->end = offsets[1];

  int64_t bytes = DTypeBytes(out->entry.dtype);
  for (const int64_t size : out->entry.shape) {
    if (!CheckedMul(bytes, size, &bytes)) {
      return Corrupt("has the shape [", absl::StrJoin(out->entry.shape, ", "),
                     "], more bytes than 64 bits count");
    }
  }
  if (out->entry.dtype == DType::kOther && out->end >= out->begin) bytes = out->end - out->begin;
  if (out->end < out->begin || out->end - out->begin != bytes) {
    return Corrupt("has data_offsets [", out->begin, ", ", out->end, "], but its shape [",
                   absl::StrJoin(out->entry.shape, ", "), "] of ", DTypeName(out->entry.dtype),
                   " takes ", bytes, " bytes");
  }
  out->entry.bytes = bytes;
  return absl::OkStatus();
}

// The data section is exactly the tensors, one after the other. REQUIRES: sorted by begin, end.
absl::Status CheckLayout(const std::vector<Described>& tensors, int64_t data_bytes,
                         absl::string_view source) {
  int64_t expected = 0;
  const Described* previous = nullptr;
  for (const Described& tensor : tensors) {
    if (tensor.begin < expected) {
      return Corrupt(source, ": the data of tensor ", Quoted(tensor.entry.name), " at offset ",
                     tensor.begin, " overlaps that of ", Quoted(previous->entry.name),
                     ", which ends at ", expected);
    }
    if (tensor.begin > expected) {
      return Corrupt(source, ": a hole of ", tensor.begin - expected, " bytes lies before tensor ",
                     Quoted(tensor.entry.name), " at data offset ", tensor.begin);
    }
    if (tensor.end > data_bytes) {
      return Corrupt(source, ": truncated: tensor ", Quoted(tensor.entry.name),
                     " ends at data offset ", tensor.end, ", but the file holds only ", data_bytes,
                     " bytes of data");
    }
    expected = tensor.end;
    previous = &tensor;
  }
  if (expected != data_bytes) {
    return Corrupt(source, ": ", data_bytes - expected, " bytes follow the last tensor's data");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorEntry>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                          absl::string_view source) {
  if (IsGitLfsPointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    return Corrupt(source, ": is ", kGitLfsPointer);
  }
  if (bytes.size() < kLengthBytes) {
    return Corrupt(source, ": truncated: ", bytes.size(),
                   " bytes cannot hold the 8 bytes of the header's length");
  }
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{bytes[i]} << (8 * i);
  if (header_bytes > uint64_t{kMaxSafetensorsHeaderBytes}) {
    return Corrupt(source, ": the header's length is ", header_bytes, " bytes; at most ",
                   kMaxSafetensorsHeaderBytes, " are allowed");
  }
  const absl::Span<const uint8_t> rest = bytes.subspan(kLengthBytes);
  if (header_bytes > rest.size()) {
    return Corrupt(source, ": truncated: the header takes ", header_bytes, " bytes, but only ",
                   rest.size(), " follow its length");
  }
  const absl::Span<const uint8_t> data = rest.subspan(header_bytes);

  simdjson::dom::parser parser;
  const absl::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  DSV4_ASSIGN_OR_RETURN(const element root,
                        ParseDom(parser, text, absl::StrCat(source, ": the header is")));
  simdjson::dom::object header;
  if (root.get(header)) return Corrupt(source, ": the header is not a JSON object");

  std::vector<Described> tensors;
  tensors.reserve(header.size());
  HashSet<absl::string_view> names;
  for (const auto [key, value] : header) {
    const absl::string_view name(key.data(), key.size());
    if (!names.insert(name).second) {
      return Corrupt(source, ": the header has the key ", Quoted(name), " twice");
    }
    if (name == "__metadata__") {
      if (!value.is_object()) return Corrupt(source, ": __metadata__ is not a JSON object");
      continue;
    }
    Described tensor;
    const absl::Status read = ReadEntry(value, &tensor);
    if (!read.ok()) return Corrupt(source, ": tensor ", Quoted(name), " ", read.message());
    tensor.entry.name = std::string(name);
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const Described& a, const Described& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  DSV4_RETURN_IF_ERROR(CheckLayout(tensors, static_cast<int64_t>(data.size()), source));

  std::vector<TensorEntry> entries;
  entries.reserve(tensors.size());
  for (Described& tensor : tensors) {
    tensor.entry.data = data.data() + tensor.begin;
    entries.push_back(std::move(tensor.entry));
  }
  return entries;
}

absl::Span<const uint8_t> SafetensorsHeader(absl::Span<const uint8_t> bytes) {
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  return bytes.subspan(0, static_cast<size_t>(kLengthBytes) + length);
}

}  // namespace dsv4
