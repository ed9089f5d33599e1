// SPDX-License-Identifier: Apache-2.0
// What tests of the CUDA backend's matrix operators share: weights packed on the device, activation
// rows with their quantised form, and comparisons with the reference's results.
#pragma once

#include <cmath>

#include "kernels/op/pack_weight.h"
#include "kernels/reference/numerics.h"
#include "kernels/sm12x/packed_layout.h"
#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/random_weights.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {

// A weight packed from its stored form, in two calls where it is long enough.
class PackedWeight {
 public:
  PackedWeight(WeightFormat format, int64_t n, int64_t k, const void* data, const void* scale)
      : data_(PackedWeightBytes(format, n, k).data), scale_(PackedWeightBytes(format, n, k).scale) {
    const int64_t cut = n > kPackRowBlock ? kPackRowBlock * (n / kPackRowBlock / 2 + 1) : n;
    for (int64_t begin = 0; begin < n; begin += cut) {
      const int64_t rows = std::min(n - begin, cut);
      const WeightBytes before = StoredWeightBytes(format, begin, k);
      const WeightBytes bytes = StoredWeightBytes(format, rows, k);
      DeviceCopy<uint8_t> from_data(bytes.data), from_scale(bytes.scale);
      from_data.Upload(static_cast<const uint8_t*>(data) + before.data, bytes.data);
      from_scale.Upload(static_cast<const uint8_t*>(scale) + before.scale, bytes.scale);
      LaunchCuda(PackWeightParams{.format = format,
                                  .n = n,
                                  .k = k,
                                  .row_begin = begin,
                                  .rows = rows,
                                  .src_data = reinterpret_cast<const std::byte*>(from_data.data()),
                                  .src_scale = from_scale.data(),
                                  .dst_data = reinterpret_cast<std::byte*>(data_.data()),
                                  .dst_scale = scale_.data()});
    }
    REQUIRE(data_.Intact());
    REQUIRE(scale_.Intact());
  }
  const uint8_t* data() const { return data_.data(); }
  const uint8_t* scale() const { return scale_.data(); }

 private:
  DeviceCopy<uint8_t> data_, scale_;
};

struct CudaFp8 : PackedWeight {
  explicit CudaFp8(const Fp8Storage& w)
      : PackedWeight(WeightFormat::kFp8, w.n, w.k, w.data.data(), w.scale.data()), n(w.n), k(w.k) {}
  Fp8Weight view() const { return {data(), scale(), n, k}; }
  int64_t n, k;
};
struct CudaFp4 : PackedWeight {
  explicit CudaFp4(const Fp4Storage& w)
      : PackedWeight(WeightFormat::kFp4, w.n, w.k, w.data.data(), w.scale.data()), n(w.n), k(w.k) {}
  Fp4Weight view() const { return {data(), scale(), n, k}; }
  int64_t n, k;
};
struct CudaFp8F32 : PackedWeight {
  explicit CudaFp8F32(const Fp8F32Storage& w)
      : PackedWeight(WeightFormat::kFp8F32, w.n, w.k, w.data.data(), w.f32_scale.data()),
        n(w.n),
        k(w.k) {}
  Fp8Weight view() const {
    return {data(), nullptr, n, k, reinterpret_cast<const float*>(scale())};
  }
  int64_t n, k;
};
struct CudaNvfp4 : PackedWeight {
  explicit CudaNvfp4(const Nvfp4Storage& w)
      : PackedWeight(WeightFormat::kNvfp4, w.n, w.k, w.data.data(), w.scale.data()),
        n(w.n),
        k(w.k),
        tensor_scale(w.tensor_scale) {}
  Nvfp4Weight view() const { return {data(), scale(), n, k, tensor_scale}; }
  int64_t n, k;
  float tensor_scale;
};
struct CudaBf16 : PackedWeight {
  explicit CudaBf16(const Bf16Storage& w)
      : PackedWeight(WeightFormat::kBf16, w.n, w.k, w.data.data(), nullptr), n(w.n), k(w.k) {}
  Bf16Weight view() const { return {reinterpret_cast<const uint16_t*>(data()), n, k}; }
  int64_t n, k;
};

// Activations of magnitudes that differ from row to row and from run to run.
inline float RandomActivation(uint64_t seed, int64_t row, int64_t k, int64_t i) {
  const int exponent = static_cast<int>(row % 5) - 2 + static_cast<int>(i / 128 % 3);
  return std::ldexp(RandomValue(seed, static_cast<uint64_t>(row * k + i)), exponent);
}

// bf16 rows, as bits and as the floats of the reference.
struct Bf16Rows {
  Bf16Rows(uint64_t seed, int64_t rows, int64_t k) : k(k) {
    for (int64_t i = 0; i < rows * k; ++i) {
      bits.push_back(FloatToBf16(RandomActivation(seed, i / k, k, i % k)));
      values.push_back(Bf16ToFloat(bits.back()));
    }
  }
  std::vector<uint16_t> Bits(int64_t first, int64_t rows) const {
    return {bits.begin() + first * k, bits.begin() + (first + rows) * k};
  }
  int64_t k;
  std::vector<uint16_t> bits;
  std::vector<float> values;
};

// Quantised rows as the backend stores them, and the round trips that the reference takes.
struct QuantizedRows {
  QuantizedRows(uint64_t seed, int64_t rows, int64_t k)
      : stride(sm12x::QuantizedRowBytes(k)), bytes(static_cast<size_t>(rows * stride)) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t run = 0; run < k; run += 128) {
        float x[128];
        for (int64_t i = 0; i < 128; ++i) x[i] = RandomActivation(seed, r, k, run + i);
        const float scale = reference::E4M3RunScale(x, 128);
        uint8_t* row = bytes.data() + r * stride;
        for (int64_t i = 0; i < 128; ++i) {
          const uint8_t code = reference::EncodeE4M3(x[i] / scale);
          row[sm12x::QuantizedOffset(run + i / 8 * 8) + i % 8] = code;
          values.push_back(E4M3ToFloat(code) * scale);
        }
        row[k + run / 128] = static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
      }
    }
  }
  std::vector<uint8_t> Bytes(int64_t first, int64_t rows) const {
    return {bytes.begin() + first * stride, bytes.begin() + (first + rows) * stride};
  }
  int64_t stride;
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

// The round trips that stored quantised rows stand for.
inline std::vector<float> DequantizedRows(const std::vector<uint8_t>& stored, int64_t rows,
                                          int64_t dim) {
  const int64_t stride = sm12x::QuantizedRowBytes(dim);
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = stored.data() + r * stride;
    for (int64_t i = 0; i < dim; ++i) {
      out.push_back(E4M3ToFloat(row[sm12x::QuantizedOffset(i / 8 * 8) + i % 8]) *
                    E8M0ToFloat(row[dim + i / 128]));
    }
  }
  return out;
}

inline float RootMeanSquare(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

// Both round nearly the same sums to bf16: seldom apart, and then by a step, or by the sums' own
// noise where they cancel.
inline void RequireSameSums(const std::vector<uint16_t>& got, const std::vector<float>& expected) {
  REQUIRE(got.size() == expected.size());
  const float noise = RootMeanSquare(expected) * 0x1p-20f;
  size_t apart = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const float value = Bf16ToFloat(got[i]);
    const float want = RoundToBf16(expected[i]);
    if (value == want) continue;
    ++apart;
    if (std::abs(value - want) <= std::abs(want) * 0x1p-7f + noise) continue;
    FAIL("element " << i << ": " << value << ", expected " << want);
  }
  INFO(apart << " of " << got.size() << " elements are apart");
  REQUIRE(apart <= 2 + got.size() / 10000);
}

inline void RequireSameSums(const std::vector<float>& got, const std::vector<float>& expected) {
  const float noise = RootMeanSquare(expected) * 0x1p-20f;
  REQUIRE(FarElements(got, expected, {.relative = 0x1p-21, .absolute = noise}) == "");
}

// Elements [first, first + part.size()) of `all` are those of `part`, bit for bit.
template <class T>
void RequireSameBits(const std::vector<T>& part, const std::vector<T>& all, int64_t first) {
  REQUIRE(static_cast<size_t>(first) + part.size() <= all.size());
  REQUIRE(DifferentBits(part, absl::MakeConstSpan(all.data() + first, part.size())) == "");
}

}  // namespace dsv4::test
