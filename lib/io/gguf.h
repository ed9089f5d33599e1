// SPDX-License-Identifier: Apache-2.0
// The GGUF container, version 3 (and 2, which is laid out alike): keys with typed values, the
// tensors' names, types and shapes, then their data. A model may be split into parts, of which only
// the first has the keys. All of it is untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/io/mapped_file.h"

namespace dsv4 {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

const char* GgufTypeName(GgufType type);  // "u8", "string", ...

// The value of a key, in the mapped file.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array; never kArray
  uint64_t count = 1;                // of an array
  absl::Span<const uint8_t> bytes;   // of the value, without an array's type and count

  // nullopt where the value is of another kind.
  std::optional<int64_t> AsInt64() const;  // integers up to 2^63 - 1
  std::optional<double> AsDouble() const;  // f32 and f64
  std::optional<bool> AsBool() const;
  std::optional<absl::string_view> AsString() const;
  // The elements of an array of numbers, each widened; of integers, of floats.
  std::optional<std::vector<int64_t>> AsInt64s() const;
  std::optional<std::vector<double>> AsDoubles() const;
  std::optional<std::vector<absl::string_view>> AsStrings() const;
};

struct GgufKey {
  absl::string_view name;
  GgufValue value;
};

struct GgufTensor {
  absl::string_view name;
  uint32_t type = 0;          // as in the file: BlockTypeOfGguf, or kGgufI32
  std::vector<int64_t> dims;  // the fastest first: reversed against other containers
  const uint8_t* data = nullptr;
  int64_t bytes = 0;
};

inline constexpr uint32_t kGgufI32 = 26;  // the tensor type of 32-bit integers

// One file.
struct GgufFile {
  std::vector<GgufKey> keys;        // in file order
  std::vector<GgufTensor> tensors;  // in file order
  int64_t header_bytes = 0;         // of everything before the data

  const GgufValue* Find(absl::string_view key) const;
};

// Parses the file image `bytes`; the result points into it. Errors, naming `source` and the key or
// tensor:
// - Corrupt: not a GGUF file, a git-lfs pointer, counts or lengths beyond the file, a name twice,
//   an unknown type of a key, a rank above 4, a row that is no whole number of blocks, data that is
//   not aligned, overlaps or lies outside of the file.
// - Unsupported: another version, big-endian files, arrays of arrays, a tensor of a type that is
//   not read (such as those of ik_llama.cpp).
absl::StatusOr<GgufFile> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view source);

// All parts of a model.
struct GgufModel {
  std::vector<MappedFile> files;
  std::vector<GgufFile> parts;  // of each file

  const GgufValue* Find(absl::string_view key) const { return parts.front().Find(key); }
  const std::string& path() const { return files.front().path(); }
};

// Opens the file `path` and, if it is a part of a split model, all others beside it. Errors:
// MappedFile's, ParseGguf's; NotFound, naming it, for a missing part; Corrupt for parts that do not
// belong together.
absl::StatusOr<GgufModel> OpenGguf(const std::string& path);

// Whether the name ends in ".gguf".
bool IsGgufPath(absl::string_view path);

// What a file is for: a model, its drafter (llama.cpp's mtp and dflash files, or tensors mtp.*
// alone) or something else, such as the projector of a vision model.
enum class GgufRole { kModel, kDrafter, kOther };
GgufRole GgufRoleOf(const GgufFile& file);

// The one model among the .gguf files of `folder`: its file, or its first part. "" if there are
// none. Files of other roles do not count. InvalidArgument, listing them, for several.
absl::StatusOr<std::string> GgufIn(const std::string& folder);

}  // namespace dsv4
