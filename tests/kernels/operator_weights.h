// SPDX-License-Identifier: Apache-2.0
// Weights and activations for the cases of the matrix operators, on either side, and how far a
// backend's sums may be from the reference's.
#pragma once

#include <random>
#include <string>

#include "kernels/op/pack_weight.h"
#include "lib/tensor/quant_format.h"
#include "tests/kernels/operator_memory.h"
#include "tests/support/gguf_model.h"

namespace dsv4::test {

inline WeightFormat FormatOf(const Fp8Storage&) { return WeightFormat::kFp8; }
inline WeightFormat FormatOf(const Fp8F32Storage&) { return WeightFormat::kFp8F32; }
inline WeightFormat FormatOf(const Fp4Storage&) { return WeightFormat::kFp4; }
inline WeightFormat FormatOf(const Nvfp4Storage&) { return WeightFormat::kNvfp4; }
inline WeightFormat FormatOf(const Bf16Storage&) { return WeightFormat::kBf16; }

// A weight in a block format, with random blocks.
struct BlockStorage {
  BlockStorage(uint64_t seed, int64_t n, int64_t k, BlockType type, float size = 0.05f)
      : n(n), k(k), type(type) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    data = RandomTensorBlocks(type, n * k, size, &random);
  }
  BlockWeight view() const { return {reinterpret_cast<const uint8_t*>(data.data()), type, n, k}; }
  int64_t n, k;
  BlockType type;
  std::string data;
};
inline WeightFormat FormatOf(const BlockStorage& w) { return BlocksFormat(w.type); }

// A weight as the side's kernels read it: packed where the backend packs weights, in two calls if
// it is long enough, else as it is stored.
class SideWeight {
 public:
  template <class Storage>
  SideWeight(On on, const Storage& w)
      : format_(FormatOf(w)),
        n_(w.n),
        k_(w.k),
        packed_(on == On::kTested && TestedEntry(Op::kPackWeight) != nullptr),
        data_(on, Bytes().data),
        scale_(on, Bytes().scale) {
    const auto* const data = reinterpret_cast<const uint8_t*>(w.data.data());
    const uint8_t* scale = data;  // of none, no byte
    if constexpr (requires { w.f32_scale; }) {
      scale = reinterpret_cast<const uint8_t*>(w.f32_scale.data());
    } else if constexpr (requires { w.scale; }) {
      scale = w.scale.data();
    }
    if constexpr (requires { w.tensor_scale; }) tensor_scale_ = w.tensor_scale;
    if (packed_) {
      Pack(data, scale);
    } else {
      data_.Set({data, data + Bytes().data});
      scale_.Set({scale, scale + Bytes().scale});
    }
  }

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  Fp8Weight fp8() const {
    if (InBlocks(format_)) {
      return {.data = data_.data(), .n = n_, .k = k_, .blocks = BlockTypeOf(format_)};
    }
    if (format_ == WeightFormat::kFp8) return {data_.data(), scale_.data(), n_, k_};
    return {data_.data(), nullptr, n_, k_, reinterpret_cast<const float*>(scale_.data())};
  }
  Bf16Weight bf16() const {
    return {reinterpret_cast<const uint16_t*>(data_.data()), n_, k_, BlockTypeOf(format_)};
  }
  ExpertMatrix expert() const {
    if (InBlocks(format_)) return BlockWeight{data_.data(), BlockTypeOf(format_), n_, k_};
    if (format_ == WeightFormat::kFp4) return Fp4Weight{data_.data(), scale_.data(), n_, k_};
    if (format_ != WeightFormat::kNvfp4) return fp8();
    return Nvfp4Weight{data_.data(), scale_.data(), n_, k_, tensor_scale_};
  }

 private:
  WeightBytes Bytes() const {
    return packed_ ? PackedWeightBytes(format_, n_, k_) : StoredWeightBytes(format_, n_, k_);
  }
  void Pack(const uint8_t* data, const uint8_t* scale) const {
    const int64_t cut = n_ > kPackRowBlock ? kPackRowBlock * (n_ / kPackRowBlock / 2 + 1) : n_;
    for (int64_t begin = 0; begin < n_; begin += cut) {
      const int64_t rows = std::min(n_ - begin, cut);
      const WeightBytes before = StoredWeightBytes(format_, begin, k_);
      const WeightBytes bytes = StoredWeightBytes(format_, rows, k_);
      const auto part = [](const uint8_t* from, int64_t first, int64_t count) {
        return Array<uint8_t>(On::kTested,
                              std::vector<uint8_t>(from + first, from + first + count));
      };
      const auto from_data = part(data, before.data, bytes.data),
                 from_scale = part(scale, before.scale, bytes.scale);
      Launch(On::kTested,
             PackWeightParams{.format = format_,
                              .n = n_,
                              .k = k_,
                              .row_begin = begin,
                              .rows = rows,
                              .src_data = reinterpret_cast<const std::byte*>(from_data.data()),
                              .src_scale = from_scale.data(),
                              .dst_data = reinterpret_cast<std::byte*>(data_.data()),
                              .dst_scale = scale_.data()});
    }
    data_.Get();  // their guards
    scale_.Get();
  }

  WeightFormat format_;
  int64_t n_, k_;
  bool packed_;
  Array<uint8_t> data_, scale_;
  float tensor_scale_ = 1;
};

// bf16 activations [rows, k] of magnitudes that differ from row to row and from run to run.
inline std::vector<float> RandomActs(uint64_t seed, int64_t rows, int64_t k) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * k; ++i) {
    const int exponent = static_cast<int>(i / k % 5) - 2 + static_cast<int>(i % k / 128 % 3);
    values.push_back(
        RoundToBf16(std::ldexp(RandomValue(seed, static_cast<uint64_t>(i)), exponent)));
  }
  return values;
}

// What f32 sums of a row [n] of outputs may be off by, where their terms cancel.
inline float NoiseOf(const float* row, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{row[i]} * row[i];
  return static_cast<float>(std::sqrt(sum / static_cast<double>(n))) * 0x1p-17f;
}

// Sums [rows, n] in f32.
inline void RequireSameF32Sums(const std::vector<float>& got, const std::vector<float>& want,
                               int64_t n) {
  REQUIRE(got.size() == want.size());
  for (size_t at = 0; at < want.size(); at += static_cast<size_t>(n)) {
    INFO("row " << at / static_cast<size_t>(n));
    REQUIRE(FarElements(absl::MakeConstSpan(&got[at], static_cast<size_t>(n)),
                        absl::MakeConstSpan(&want[at], static_cast<size_t>(n)),
                        {.relative = 0x1p-21, .absolute = NoiseOf(&want[at], n)}) == "");
  }
}

// bf16 of nearly the same sums [rows, n]: seldom apart, and then by a step, or by the sums' noise.
// `want` need not be rounded.
inline void RequireSameSums(const std::vector<float>& got, const std::vector<float>& want,
                            int64_t n) {
  REQUIRE(got.size() == want.size());
  size_t apart = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float rounded = RoundToBf16(want[i]);
    if (got[i] == rounded) continue;
    ++apart;
    const float noise = NoiseOf(&want[i / static_cast<size_t>(n) * static_cast<size_t>(n)], n);
    if (std::abs(got[i] - rounded) <= std::abs(rounded) * 0x1p-7f + noise) continue;
    FAIL("element " << i << ": " << got[i] << ", expected " << rounded);
  }
  INFO(apart << " of " << got.size() << " elements are apart");
  REQUIRE(apart <= 2 + got.size() / 2000);
}

}  // namespace dsv4::test
