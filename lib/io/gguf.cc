// SPDX-License-Identifier: Apache-2.0
#include "lib/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/git_lfs.h"
#include "lib/tensor/block_format.h"

namespace dsv4 {
namespace {

constexpr char kMagic[] = "GGUF";
constexpr int64_t kDefaultAlignment = 32, kMostAlignment = 1 << 16;
constexpr uint32_t kMostDims = 4;
// The fewest bytes of a key and of a tensor's description.
constexpr uint64_t kLeastKeyBytes = 13, kLeastTensorBytes = 32;

template <class T>
T ReadAs(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Bytes of a number; 0 of strings and arrays.
uint64_t NumberBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

std::optional<int64_t> IntegerAt(GgufType type, const uint8_t* p) {
  switch (type) {
    case GgufType::kU8:
      return ReadAs<uint8_t>(p);
    case GgufType::kI8:
      return ReadAs<int8_t>(p);
    case GgufType::kU16:
      return ReadAs<uint16_t>(p);
    case GgufType::kI16:
      return ReadAs<int16_t>(p);
    case GgufType::kU32:
      return ReadAs<uint32_t>(p);
    case GgufType::kI32:
      return ReadAs<int32_t>(p);
    case GgufType::kI64:
      return ReadAs<int64_t>(p);
    case GgufType::kU64: {
      const auto value = ReadAs<uint64_t>(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> FloatAt(GgufType type, const uint8_t* p) {
  if (type == GgufType::kF32) return double{ReadAs<float>(p)};
  if (type == GgufType::kF64) return ReadAs<double>(p);
  return std::nullopt;
}

// The elements of an array of numbers that `at` can read.
template <class T, class At>
std::optional<std::vector<T>> Elements(const GgufValue& value, const At& at) {
  if (value.type != GgufType::kArray) return std::nullopt;
  const uint64_t size = NumberBytes(value.element);
  if (size == 0) return std::nullopt;
  std::vector<T> elements;
  elements.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    const std::optional<T> element = at(value.element, value.bytes.data() + i * size);
    if (!element) return std::nullopt;
    elements.push_back(*element);
  }
  return elements;
}

// Reads a file from its beginning. What does not fit into the file fails and reads nothing.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : rest_(bytes) {}

  template <class T>
  [[nodiscard]] bool Read(T* value) {
    if (rest_.size() < sizeof *value) return false;
    *value = ReadAs<T>(rest_.data());
    rest_.remove_prefix(sizeof *value);
    return true;
  }
  [[nodiscard]] bool Skip(uint64_t bytes) {
    if (bytes > rest_.size()) return false;
    rest_.remove_prefix(static_cast<size_t>(bytes));
    return true;
  }
  [[nodiscard]] bool ReadString(absl::string_view* text) {
    Reader before = *this;
    uint64_t length = 0;
    if (!Read(&length) || length > rest_.size()) {
      *this = before;
      return false;
    }
    *text = {reinterpret_cast<const char*>(rest_.data()), static_cast<size_t>(length)};
    rest_.remove_prefix(static_cast<size_t>(length));
    return true;
  }

  absl::Span<const uint8_t> rest() const { return rest_; }

 private:
  absl::Span<const uint8_t> rest_;
};

// Messages complete "key NAME ...".
absl::Status ReadValue(Reader* reader, GgufValue* value) {
  uint32_t type = 0;
  const auto cut = [] { return Corrupt("is cut off by the end of the file"); };
  if (!reader->Read(&type)) return cut();
  if (type > static_cast<uint32_t>(GgufType::kF64)) return Corrupt("has the unknown type ", type);
  value->type = value->element = static_cast<GgufType>(type);
  if (value->type == GgufType::kArray) {
    if (!reader->Read(&type) || !reader->Read(&value->count)) return cut();
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      return Corrupt("is an array of the unknown type ", type);
    }
    value->element = static_cast<GgufType>(type);
    if (value->element == GgufType::kArray) return Unsupported("is an array of arrays");
  }
  const uint8_t* const begin = reader->rest().data();
  const uint64_t size = NumberBytes(value->element);
  if (size != 0) {
    uint64_t bytes = 0;
    if (!CheckedMul(value->count, size, &bytes) || !reader->Skip(bytes)) return cut();
  } else {
    absl::string_view text;
    for (uint64_t i = 0; i < value->count; ++i) {
      if (!reader->ReadString(&text)) return cut();
    }
  }
  value->bytes = {begin, static_cast<size_t>(reader->rest().data() - begin)};
  return absl::OkStatus();
}

struct Described {
  GgufTensor tensor;
  uint64_t offset = 0;
};

std::string DimsText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

// Messages complete "tensor NAME ...".
absl::Status ReadTensor(Reader* reader, Described* out) {
  const auto cut = [] { return Corrupt("is cut off by the end of the file"); };
  uint32_t rank = 0;
  if (!reader->Read(&rank)) return cut();
  if (rank == 0 || rank > kMostDims) {
    return Corrupt("has ", rank, " dimensions; 1 to ", kMostDims, " are read");
  }
  GgufTensor& tensor = out->tensor;
  int64_t elements = 1;
  bool fits = true;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t dim = 0;
    if (!reader->Read(&dim)) return cut();
    fits = fits && dim > 0 && dim <= uint64_t{1} << 62;
    tensor.dims.push_back(static_cast<int64_t>(dim));
    fits = fits && CheckedMul(elements, tensor.dims.back(), &elements);
  }
  if (!reader->Read(&tensor.type) || !reader->Read(&out->offset)) return cut();
  if (!fits) {
    return Corrupt("has the dimensions ", DimsText(tensor.dims),
                   ": each must be 1 or more, and their product fit in 63 bits");
  }
  int64_t block = 1, bytes = sizeof(int32_t);
  if (tensor.type != kGgufI32) {
    const std::optional<BlockType> type = BlockTypeOfGguf(tensor.type);
    if (!type) return Unsupported("is of ", GgufTypeName(tensor.type), ", which is not read");
    block = InfoOf(*type).elements;
    bytes = InfoOf(*type).bytes;
  }
  if (tensor.dims.front() % block != 0) {
    return Corrupt("has rows of ", tensor.dims.front(), " elements, which are no whole blocks of ",
                   GgufTypeName(tensor.type), " (", block, ")");
  }
  if (!CheckedMul(elements / block, bytes, &tensor.bytes)) {
    return Corrupt("has the dimensions ", DimsText(tensor.dims), ", more bytes than 63 bits count");
  }
  return absl::OkStatus();
}

// Sets the data pointers. `data`: what follows the header.
absl::Status Place(std::vector<Described>* tensors, absl::Span<const uint8_t> data,
                   uint64_t alignment, absl::string_view source) {
  std::vector<const Described*> in_order;
  for (Described& described : *tensors) {
    GgufTensor& tensor = described.tensor;
    const absl::string_view name = tensor.name;
    if (described.offset % alignment != 0) {
      return Corrupt(source, ": tensor ", Quoted(name), " begins at data offset ", described.offset,
                     ", which is no multiple of the alignment, ", alignment);
    }
    if (described.offset > data.size() ||
        static_cast<uint64_t>(tensor.bytes) > data.size() - described.offset) {
      return Corrupt(source, ": truncated: tensor ", Quoted(name), " takes ", tensor.bytes,
                     " bytes from data offset ", described.offset, ", but the file holds only ",
                     data.size(), " bytes of data");
    }
    tensor.data = data.data() + described.offset;
    in_order.push_back(&described);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const Described* a, const Described* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < in_order.size(); ++i) {
    const Described &previous = *in_order[i - 1], &next = *in_order[i];
    if (next.offset - previous.offset < static_cast<uint64_t>(previous.tensor.bytes)) {
      return Corrupt(source, ": the data of tensor ", Quoted(next.tensor.name), " at offset ",
                     next.offset, " overlaps that of ", Quoted(previous.tensor.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AlignmentOf(const GgufFile& file, absl::string_view source) {
  const GgufValue* value = file.Find("general.alignment");
  if (value == nullptr) return uint64_t{kDefaultAlignment};
  const std::optional<int64_t> alignment = value->AsInt64();
  if (alignment && *alignment > 0 && *alignment <= kMostAlignment &&
      std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return static_cast<uint64_t>(*alignment);
  }
  return Corrupt(source, ": general.alignment is ",
                 alignment ? absl::StrCat(*alignment) : GgufTypeName(value->type),
                 "; expected a power of two up to ", kMostAlignment);
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                    "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::optional<int64_t> GgufValue::AsInt64() const { return IntegerAt(type, bytes.data()); }

std::optional<double> GgufValue::AsDouble() const { return FloatAt(type, bytes.data()); }

std::optional<bool> GgufValue::AsBool() const {
  if (type != GgufType::kBool) return std::nullopt;
  return bytes[0] != 0;
}

std::optional<absl::string_view> GgufValue::AsString() const {
  if (type != GgufType::kString) return std::nullopt;
  absl::string_view text;
  return Reader(bytes).ReadString(&text) ? std::optional(text) : std::nullopt;
}

std::optional<std::vector<int64_t>> GgufValue::AsInt64s() const {
  return Elements<int64_t>(*this, IntegerAt);
}

std::optional<std::vector<double>> GgufValue::AsDoubles() const {
  return Elements<double>(*this, FloatAt);
}

std::optional<std::vector<absl::string_view>> GgufValue::AsStrings() const {
  if (type != GgufType::kArray || element != GgufType::kString) return std::nullopt;
  Reader reader(bytes);
  std::vector<absl::string_view> texts(static_cast<size_t>(count));
  for (absl::string_view& text : texts) {
    if (!reader.ReadString(&text)) return std::nullopt;
  }
  return texts;
}

const GgufValue* GgufFile::Find(absl::string_view key) const {
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const GgufKey& other) { return other.name == key; });
  return found == keys.end() ? nullptr : &found->value;
}

absl::StatusOr<GgufFile> ParseGguf(absl::Span<const uint8_t> bytes, absl::string_view source) {
  if (IsGitLfsPointer({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    return Corrupt(source, ": is ", kGitLfsPointer);
  }
  Reader reader(bytes);
  uint32_t magic = 0, version = 0;
  uint64_t tensor_count = 0, key_count = 0;
  if (!reader.Read(&magic) || std::memcmp(&magic, kMagic, sizeof magic) != 0) {
    return Corrupt(source, ": is not a GGUF file: it does not begin with \"", kMagic, "\"");
  }
  if (!reader.Read(&version)) return Corrupt(source, ": truncated before its version");
  if (version != 3 && version != 2) {
    const bool swapped = version != 0 && (version & 0xffffff) == 0;
    return Unsupported(
        source, ": is GGUF ",
        swapped ? std::string("of a big-endian machine") : absl::StrCat("version ", version),
        "; little-endian files of version 3 are supported");
  }
  if (!reader.Read(&tensor_count) || !reader.Read(&key_count)) {
    return Corrupt(source, ": truncated in its first 24 bytes");
  }
  if (key_count > reader.rest().size() / kLeastKeyBytes ||
      tensor_count > reader.rest().size() / kLeastTensorBytes) {
    return Corrupt(source, ": truncated: ", bytes.size(), " bytes cannot hold ", key_count,
                   " keys and ", tensor_count, " tensors");
  }

  GgufFile file;
  HashSet<absl::string_view> names;
  for (uint64_t i = 0; i < key_count; ++i) {
    GgufKey key;
    if (!reader.ReadString(&key.name)) {
      return Corrupt(source, ": key ", i, " of ", key_count, " is cut off by the end of the file");
    }
    const absl::Status read = ReadValue(&reader, &key.value);
    if (!read.ok()) {
      const std::string text =
          absl::StrCat(source, ": key ", Quoted(key.name), " ", read.message());
      return IsUnsupported(read) ? Unsupported(text) : Corrupt(text);
    }
    if (!names.insert(key.name).second) {
      return Corrupt(source, ": has the key ", Quoted(key.name), " twice");
    }
    file.keys.push_back(key);
  }
  DSV4_ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(file, source));

  std::vector<Described> tensors;
  names.clear();
  for (uint64_t i = 0; i < tensor_count; ++i) {
    Described described;
    if (!reader.ReadString(&described.tensor.name)) {
      return Corrupt(source, ": tensor ", i, " of ", tensor_count,
                     " is cut off by the end of the file");
    }
    const absl::string_view name = described.tensor.name;
    const absl::Status read = ReadTensor(&reader, &described);
    if (!read.ok()) {
      const std::string text = absl::StrCat(source, ": tensor ", Quoted(name), " ", read.message());
      return IsUnsupported(read) ? Unsupported(text) : Corrupt(text);
    }
    if (!names.insert(name).second) {
      return Corrupt(source, ": has tensor ", Quoted(name), " twice");
    }
    tensors.push_back(std::move(described));
  }
  const uint64_t header = RoundUp<uint64_t>(bytes.size() - reader.rest().size(), alignment);
  file.header_bytes = static_cast<int64_t>(std::min<uint64_t>(header, bytes.size()));
  DSV4_RETURN_IF_ERROR(
      Place(&tensors, bytes.subspan(static_cast<size_t>(file.header_bytes)), alignment, source));
  for (Described& described : tensors) file.tensors.push_back(std::move(described.tensor));
  return file;
}

}  // namespace dsv4
