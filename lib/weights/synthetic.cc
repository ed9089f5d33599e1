// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"
#include "lib/weights/synthetic_mix.h"
#include "lib/weights/weights.h"

namespace dsv4 {
namespace {

// What tensors of one dtype are for.
enum class Use { kAny, kNorm, kRunScales, kTensorScale };

Use UseOf(const TensorEntry& entry) {
  if (absl::EndsWith(entry.name, "norm.weight")) return Use::kNorm;
  if (absl::EndsWith(entry.name, ".weight_scale")) return Use::kRunScales;
  return absl::EndsWith(entry.name, ".weight_scale_2") ? Use::kTensorScale : Use::kAny;
}

// Makes the MXFP4 matrices of routed experts NVFP4 ones.
void MakeNvfp4(std::vector<TensorEntry>* tensors) {
  std::vector<TensorEntry> tensor_scales;
  for (TensorEntry& entry : *tensors) {
    if (!absl::StrContains(entry.name, ".ffn.experts.")) continue;
    if (entry.dtype == DType::kI8) {
      entry.dtype = DType::kU8;
    } else if (entry.dtype == DType::kF8E8M0) {
      const absl::string_view matrix = absl::StripSuffix(entry.name, ".scale");
      tensor_scales.push_back({.name = absl::StrCat(matrix, ".weight_scale_2"),
                               .dtype = DType::kF32,
                               .other_dtype = {},
                               .shape = {},
                               .bytes = sizeof(float)});
      entry.name = absl::StrCat(matrix, ".weight_scale");
      entry.dtype = DType::kF8E4M3;
      entry.shape.back() *= kFp4Run / kNvfp4Run;
      entry.bytes *= kFp4Run / kNvfp4Run;
    }
  }
  tensors->insert(tensors->end(), tensor_scales.begin(), tensor_scales.end());
}

// Elements of a dtype: random where values do not matter, powers of two where they keep sums near
// 1. Norms have weights of 1 to 1.5. The experts of a token are distinct.
std::vector<uint8_t> Elements(DType dtype, Use use, int64_t bytes, int64_t experts) {
  const bool norm = use == Use::kNorm;
  std::mt19937_64 random(static_cast<uint64_t>(dtype));
  std::vector<uint8_t> memory(static_cast<size_t>(bytes));
  // Fills memory with values, or with words of eight bytes.
  const auto fill = [&](auto values) {
    using T = decltype(values(uint64_t{}));
    for (size_t at = 0; at < memory.size(); at += sizeof(T)) {
      const T value = values(random());
      std::memcpy(memory.data() + at, &value, std::min(sizeof value, memory.size() - at));
    }
  };
  switch (dtype) {
    case DType::kF8E4M3:  // magnitudes below 2; scales of runs of 2^-4 to 2^-1
      fill([use](uint64_t bits) {
        return use == Use::kRunScales ? (bits & 0x1f1f1f1f1f1f1f1fu) + 0x1818181818181818u
                                      : bits & 0xbfbfbfbfbfbfbfbfu;
      });
      break;
    case DType::kI8:  // two e2m1 codes
    case DType::kU8:
      fill([](uint64_t bits) { return bits; });
      break;
    case DType::kF8E8M0:  // 2^-10 to 2^-7
      fill([](uint64_t bits) { return (bits & 0x0303030303030303u) + 0x7575757575757575u; });
      break;
    case DType::kBF16:  // magnitudes of 2^-8 to 2^-6, signs random
      fill([norm](uint64_t bits) {
        return norm ? (bits & 0x003f003f003f003f) | 0x3f803f803f803f80
                    : (bits & 0x80ff80ff80ff80ff) | 0x3b803b803b803b80;
      });
      break;
    case DType::kF16:  // the same
      fill([](uint64_t bits) { return (bits & 0x87ff87ff87ff87ff) | 0x1800180018001800; });
      break;
    case DType::kF32:
      fill([norm, use](uint64_t bits) {
        if (use == Use::kTensorScale) return 0x1.4p-6f;
        if (norm) return 1 + static_cast<float>(bits & 0xffff) * 0x1p-17f;
        return static_cast<float>(static_cast<int32_t>(bits & 0xffff) - 0x8000) * 0x1p-20f;
      });
      break;
    case DType::kI64:
      fill([experts, next = int64_t{0}](uint64_t) mutable { return next++ % experts; });
      break;
    default:
      break;
  }
  return memory;
}

std::vector<uint8_t> SkewedBias(int64_t experts, float skew, std::mt19937_64* random) {
  std::vector<float> bias;
  for (int64_t rank = 1; rank <= experts; ++rank) {
    bias.push_back(-skew * std::log(static_cast<float>(rank)));
  }
  std::shuffle(bias.begin(), bias.end(), *random);
  std::vector<uint8_t> bytes(bias.size() * sizeof(float));
  std::memcpy(bytes.data(), bias.data(), bytes.size());
  return bytes;
}

// The packed elements of routed experts from `first` on, one after another. At the end of the file
// they start at its beginning again.
void PutInFile(absl::Span<const uint8_t> file, int64_t first, std::vector<TensorEntry>* tensors) {
  size_t end = 0;
  for (TensorEntry& entry : *tensors) {
    const size_t at = entry.name.find(".ffn.experts.");
    int64_t expert = 0;
    if (at == std::string::npos || (entry.dtype != DType::kI8 && entry.dtype != DType::kBlocks)) {
      continue;
    };
    const absl::string_view rest = absl::string_view(entry.name).substr(at + 13);
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('.')), &expert) || expert < first) continue;
    const auto bytes = static_cast<size_t>(entry.bytes);
    if (end + bytes > file.size()) end = 0;
    entry.data = file.data() + end;
    end += bytes;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> SyntheticCheckpoint(const ModelConfig& config,
                                                                const SyntheticOptions& options) {
  std::vector<TensorEntry> tensors = Weights::TensorsOf(config);
  if (!options.mix.empty()) DSV4_RETURN_IF_ERROR(ApplyMix(options.mix, &tensors));
  if (options.nvfp4_experts) MakeNvfp4(&tensors);
  std::vector<MappedFile> files;
  if (!options.file.empty()) {
    DSV4_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(options.file));
    files.push_back(std::move(file));
  }
  const auto checkpoint =
      [&](std::vector<std::vector<uint8_t>> memory) -> absl::StatusOr<std::unique_ptr<Checkpoint>> {
    if (options.mix.empty()) {
      return Checkpoint::FromMemory(std::move(tensors), std::move(memory), std::move(files));
    }
    return Checkpoint::FromGguf(absl::StrCat("random weights as of ", options.mix),
                                std::move(tensors), std::move(files), {}, std::move(memory));
  };
  if (options.all_in_file) {
    for (TensorEntry& entry : tensors) entry.data = files.front().bytes().data();
    return checkpoint({});
  }
  using Pool = std::tuple<DType, BlockType, Use>;
  const auto pool_of = [](const TensorEntry& entry) {
    return Pool(entry.dtype, entry.blocks, UseOf(entry));
  };
  std::map<Pool, int64_t> bytes;
  for (const TensorEntry& entry : tensors) {
    int64_t& largest = bytes[pool_of(entry)];
    largest = std::max(largest, entry.bytes);
  }
  std::vector<std::vector<uint8_t>> memory;
  std::map<Pool, const uint8_t*> data;
  for (const auto& [pool, largest] : bytes) {
    const auto [dtype, blocks, use] = pool;
    memory.push_back(blocks != BlockType::kNone
                         ? RandomBlocks(blocks, largest)
                         : Elements(dtype, use, largest, config.n_routed_experts));
    data[pool] = memory.back().data();
  }
  std::mt19937_64 random(1);
  for (TensorEntry& entry : tensors) {
    entry.data = data[pool_of(entry)];
    if (options.skew == 0 || !absl::EndsWith(entry.name, ".gate.bias")) continue;
    memory.push_back(SkewedBias(config.n_routed_experts, options.skew, &random));
    entry.data = memory.back().data();
  }
  if (!files.empty()) PutInFile(files.front().bytes(), options.first_in_file, &tensors);
  return checkpoint(std::move(memory));
}

}  // namespace dsv4
