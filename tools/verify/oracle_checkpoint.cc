// SPDX-License-Identifier: Apache-2.0
// Every element is a look-up or integer arithmetic on one 64-bit word; word i of a tensor depends
// on its name, the case's seed and i alone. So a tensor is written in parts of any size.
#include "tools/verify/oracle_checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"
#include "tools/verify/oracle_layout.h"
#include "tools/verify/oracle_words.h"

namespace dsv4 {
namespace {

// The 16 magnitudes of a weight, exact in e4m3 and bf16.
constexpr std::array<float, 16> kMagnitudes = {.125f, .125f, .25f,  .25f, .375f,  .375f, .5f,  .5f,
                                               .625f, .75f,  .875f, 1.f,  1.125f, 1.25f, 1.5f, 2.f};

constexpr float Magnitude(uint64_t word) {
  const float magnitude = kMagnitudes[word & 15];
  return (word >> 4) & 1 ? -magnitude : magnitude;
}

// e4m3 of a number that it holds exactly and that is zero or at least 2^-6: the float's exponent
// re-biased from 127 to 7, and three bits of its mantissa.
constexpr uint8_t E4M3Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 31 << 7, magnitude = bits & 0x7fffffffu;
  return static_cast<uint8_t>(magnitude == 0 ? sign : sign | ((magnitude >> 20) - (120u << 3)));
}

// E4M3Of(Magnitude(word)) for each of the 32 values of the bits it reads.
constexpr std::array<uint8_t, 32> kE4M3Bytes = [] {
  std::array<uint8_t, 32> bytes{};
  for (uint32_t i = 0; i < 32; ++i) bytes[i] = E4M3Of(Magnitude(i));
  return bytes;
}();

// What a scale's word adds to its exponent.
int Step(uint64_t word) { return static_cast<int>(word % 3); }

// The largest step of each 128 x 128 block of a weight with rows of `columns` elements, from the
// words of its `count` FP4 scales.
std::vector<uint8_t> LargestSteps(const OracleWords& words, int64_t count, int64_t columns) {
  const int64_t across = columns / kFp8Block, per_row = columns / kFp4Run;
  std::vector<uint8_t> largest(static_cast<size_t>(count / per_row / kFp8Block * across));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / per_row, column = i % per_row * kFp4Run;
    uint8_t& block = largest[static_cast<size_t>(row / kFp8Block * across + column / kFp8Block)];
    block = std::max(block, static_cast<uint8_t>(Step(words[i])));
  }
  return largest;
}

// In [-1, 1), a multiple of 2^-23: exact in a float.
float Uniform(uint64_t word) {
  return static_cast<float>(static_cast<double>(word >> 40) / (1 << 23) - 1);
}

// A file that is being written; the first failure is kept.
class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
    if (file_ == nullptr) Fail();
  }
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  absl::Status Write(const void* data, size_t bytes) {
    if (status_.ok() && std::fwrite(data, 1, bytes, file_) != bytes) Fail();
    return status_;
  }
  absl::Status Write(absl::string_view text) { return Write(text.data(), text.size()); }

  absl::Status Close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) Fail();
    return status_;
  }

 private:
  void Fail() {
    if (!status_.ok()) return;
    status_ = IoError(path_, ": cannot write: ", std::generic_category().message(errno));
  }

  std::string path_;
  std::FILE* file_;
  absl::Status status_;
};

// Elements [begin, end) of `out`: words of one tensor turned into elements of T.
template <class T, class Element>
absl::Status WriteElements(int64_t count, OutputFile* file, const Element& element) {
  constexpr int64_t kPart = (int64_t{1} << 18) / sizeof(T);
  std::vector<T> part(static_cast<size_t>(std::min(count, kPart)));
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t size = std::min(kPart, count - begin);
    for (int64_t i = 0; i < size; ++i) part[i] = element(begin + i);
    DSV4_RETURN_IF_ERROR(file->Write(part.data(), size * sizeof(T)));
  }
  return absl::OkStatus();
}

// The bytes of a weight that an FP4 weight of the same values becomes, or of its scales.
absl::Status WriteFp8Cast(const OracleCase& oracle, const CaseTensor& tensor,
                          const OracleWords& words, OutputFile* file) {
  const int64_t columns = tensor.columns, across = columns / kFp8Block;
  if (tensor.fill == Fill::kE8M0OfBlocks) {
    const std::vector<uint8_t> largest =
        LargestSteps(words, tensor.Bytes() * kFp8Block * kFp8Block / kFp4Run, columns);
    return WriteElements<uint8_t>(tensor.Bytes(), file, [&](int64_t i) {
      return static_cast<uint8_t>(127 + tensor.exponent + largest[static_cast<size_t>(i)]);
    });
  }
  const OracleWords scales(oracle.seed, tensor.scale_words);
  const std::vector<uint8_t> largest = LargestSteps(scales, tensor.Bytes() / kFp4Run, columns);
  return WriteElements<uint8_t>(tensor.Bytes(), file, [&](int64_t i) {
    const int64_t row = i / columns, column = i % columns;
    const auto pair = static_cast<uint8_t>(words[i / 2]);
    const int top = largest[static_cast<size_t>(row / kFp8Block * across + column / kFp8Block)];
    const float value = E2M1ToFloat(i % 2 == 0 ? pair & 15 : pair >> 4);
    return E4M3Of(std::ldexp(value, 6 + Step(scales[i / kFp4Run]) - top));
  });
}

absl::Status WriteTensor(const OracleCase& oracle, const CaseTensor& tensor, OutputFile* file) {
  const OracleWords words(oracle.seed, tensor.words.empty() ? tensor.name : tensor.words);
  const int64_t count = tensor.Bytes() / DTypeBytes(tensor.dtype);
  const float scale = std::ldexp(1.f, tensor.exponent);
  // e4m3 of 2^(exponent + the word's step).
  const auto power = [&](uint64_t word) { return (7 + tensor.exponent + Step(word)) << 3; };
  switch (tensor.fill) {
    case Fill::kE4M3:
      return WriteElements<uint8_t>(count, file,
                                    [&](int64_t i) { return kE4M3Bytes[words[i] & 31]; });
    case Fill::kFp4Pair:
      return WriteElements<uint8_t>(count, file,
                                    [&](int64_t i) { return static_cast<uint8_t>(words[i]); });
    case Fill::kFp4InE4M3:
    case Fill::kE8M0OfBlocks:
      return WriteFp8Cast(oracle, tensor, words, file);
    case Fill::kE8M0:
      return WriteElements<uint8_t>(count, file, [&](int64_t i) {
        return static_cast<uint8_t>(127 + tensor.exponent + Step(words[i]));
      });
    case Fill::kE4M3Powers:
      return WriteElements<uint8_t>(
          count, file, [&](int64_t i) { return static_cast<uint8_t>(power(words[i / 2])); });
    case Fill::kE4M3Uneven:
      return WriteElements<uint8_t>(count, file, [&](int64_t i) {
        const uint64_t word = words[i];
        return static_cast<uint8_t>(power(word) | static_cast<int>((word >> 8) & 7));
      });
    case Fill::kBf16:
      return WriteElements<uint16_t>(
          count, file, [&](int64_t i) { return FloatToBf16(Magnitude(words[i]) * scale); });
    case Fill::kNorm:
      return WriteElements<uint16_t>(count, file, [&](int64_t i) {
        return FloatToBf16(1 + (static_cast<float>(words[i] % 32) - 16) / 64);
      });
    case Fill::kF32:
      return WriteElements<float>(count, file,
                                  [&](int64_t i) { return Uniform(words[i]) * scale; });
    case Fill::kHcScale:
      return WriteElements<float>(count, file,
                                  [&](int64_t i) { return .75f + Uniform(words[i]) * .25f; });
    case Fill::kPowerOfTwo:
      return WriteElements<float>(count, file, [&](int64_t) { return scale; });
    case Fill::kUneven:
      return WriteElements<float>(count, file, [&](int64_t i) {
        return scale * (1 + static_cast<float>(1 + words[i] % 63) / 64);
      });
    case Fill::kExperts: {
      const int64_t width = oracle.model.num_experts_per_tok;
      const auto experts = static_cast<uint64_t>(oracle.model.n_routed_experts);
      return WriteElements<int64_t>(count, file, [&](int64_t i) {
        const uint64_t word = words[i / width];
        const uint64_t step = (word >> 33) & 1 ? 1 : experts - 1;
        return static_cast<int64_t>((word % experts + static_cast<uint64_t>(i % width) * step) %
                                    experts);
      });
    }
  }
  return Internal("a fill without a rule");
}

absl::Status WriteShard(const OracleCase& oracle, absl::Span<const CaseTensor> tensors,
                        const std::string& path) {
  std::string header = "{";
  int64_t position = 0;
  for (const CaseTensor& tensor : tensors) {
    const int64_t end = position + tensor.Bytes();
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name, "\":{\"dtype\":\"",
                    DTypeName(tensor.dtype), "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", position, ",", end, "]}");
    position = end;
  }
  header += "}";
  header.resize(RoundUp<size_t>(header.size(), 8), ' ');

  OutputFile file(path);
  const uint64_t header_bytes = header.size();
  DSV4_RETURN_IF_ERROR(file.Write(&header_bytes, sizeof header_bytes));
  DSV4_RETURN_IF_ERROR(file.Write(header));
  for (const CaseTensor& tensor : tensors) {
    DSV4_RETURN_IF_ERROR(WriteTensor(oracle, tensor, &file));
  }
  return file.Close();
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  OutputFile file(path);
  DSV4_RETURN_IF_ERROR(file.Write(text));
  return file.Close();
}

}  // namespace

absl::Status WriteOracleCheckpoint(const OracleCase& oracle, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError(folder, ": cannot make the folder: ", error.message());
  DSV4_RETURN_IF_ERROR(WriteText(folder + "/config.json", oracle.model_json));

  const std::vector<CaseTensor> layout = TensorsOfCase(oracle);
  const absl::Span<const CaseTensor> tensors = layout;
  const auto per_shard = CeilDiv(tensors.size(), static_cast<size_t>(oracle.shards));
  int64_t total = 0;
  std::string weight_map;
  for (int64_t shard = 0; shard < oracle.shards; ++shard) {
    const std::string file = oracle.shards == 1 ? "model.safetensors"
                                                : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                                  shard + 1, oracle.shards);
    const size_t begin = std::min(per_shard * static_cast<size_t>(shard), tensors.size());
    const absl::Span<const CaseTensor> part = tensors.subspan(begin, per_shard);
    DSV4_RETURN_IF_ERROR(WriteShard(oracle, part, absl::StrCat(folder, "/", file)));
    for (const CaseTensor& tensor : part) {
      total += tensor.Bytes();
      absl::StrAppend(&weight_map, weight_map.empty() ? "" : ",", "\n\"", tensor.name, "\": \"",
                      file, "\"");
    }
  }
  if (oracle.shards == 1) return absl::OkStatus();
  return WriteText(folder + "/model.safetensors.index.json",
                   absl::StrCat("{\n\"metadata\": {\n\"total_size\": ", total,
                                "\n},\n\"weight_map\": {", weight_map, "\n}\n}"));
}

}  // namespace dsv4
