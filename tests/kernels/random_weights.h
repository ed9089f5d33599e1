// SPDX-License-Identifier: Apache-2.0
// Reproducible random numbers for kernel tests, and weights of each stored format made of them.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"

namespace dsv4::test {

// Values in [-1, 1) that depend on `seed` and the index alone.
inline float RandomValue(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f;
}

inline std::vector<float> RandomFloats(uint64_t seed, int64_t count, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = RandomValue(seed, i) * scale;
  return values;
}

inline uint64_t Hash(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// A bf16 number, roughly normal with deviation 1.
inline float Value(uint64_t kind, int64_t sequence, int64_t at, int64_t element) {
  uint64_t h = Hash(kind);
  h = Hash(h ^ static_cast<uint64_t>(sequence));
  h = Hash(h ^ static_cast<uint64_t>(at));
  h = Hash(h ^ static_cast<uint64_t>(element));
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(h >> (16 * i) & 0xffff) / 65536 - 0.5;
  return RoundToBf16(static_cast<float>(sum * 1.7));
}

// Weights near 1, as a norm has them.
inline std::vector<uint16_t> RandomNorm(uint64_t seed, int64_t count) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = FloatToBf16(1 + 0.25f * RandomValue(seed, i));
  }
  return values;
}

struct Fp8Storage {
  Fp8Storage(uint64_t seed, int64_t n, int64_t k) : n(n), k(k) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float value = (RandomValue(seed, static_cast<uint64_t>(i)) + 1) * 127.9f;
      data.push_back(static_cast<uint8_t>(value) & 0xbf);  // magnitudes below 2, no NaN
    }
    for (int64_t i = 0; i < (n + 127) / 128 * (k / 128); ++i) {
      scale.push_back(static_cast<uint8_t>(123 + i % 3));
    }
  }
  Fp8Weight view() const { return {data.data(), scale.data(), n, k}; }
  int64_t n, k;
  std::vector<uint8_t> data, scale;
};

// The same under F32 scales. None of them is a power of two.
struct Fp8F32Storage : Fp8Storage {
  Fp8F32Storage(uint64_t seed, int64_t n, int64_t k) : Fp8Storage(seed, n, k) {
    for (size_t i = 0; i < scale.size(); ++i) {
      f32_scale.push_back((1 + static_cast<float>(1 + i * 37 % 127) / 128) * E8M0ToFloat(scale[i]));
    }
  }
  Fp8Weight view() const { return {data.data(), nullptr, n, k, f32_scale.data()}; }
  std::vector<float> f32_scale;
};

struct Fp4Storage {
  Fp4Storage(uint64_t seed, int64_t n, int64_t k) : n(n), k(k) {
    for (int64_t i = 0; i < n * k / 2; ++i) {
      data.push_back(
          static_cast<uint8_t>((RandomValue(seed, static_cast<uint64_t>(i)) + 1) * 127.9f));
    }
    for (int64_t i = 0; i < n * k / 32; ++i) scale.push_back(static_cast<uint8_t>(121 + i % 3));
  }
  Fp4Weight view() const { return {data.data(), scale.data(), n, k}; }
  int64_t n, k;
  std::vector<uint8_t> data, scale;
};

// Scales of all magnitudes, from e4m3's smallest on, and mantissas.
struct Nvfp4Storage {
  Nvfp4Storage(uint64_t seed, int64_t n, int64_t k)
      : n(n), k(k), data(Fp4Storage(seed, n, k).data), tensor_scale(0x1.4p-7f) {
    for (int64_t i = 0; i < n * k / kNvfp4Run; ++i) {
      const float value = (RandomValue(seed + 1, static_cast<uint64_t>(i)) + 1) * 7.9f;
      scale.push_back(static_cast<uint8_t>(i % 19 == 3 ? 1 + i % 7 : 40 + static_cast<int>(value)));
    }
  }
  Nvfp4Weight view() const { return {data.data(), scale.data(), n, k, tensor_scale}; }
  int64_t n, k;
  std::vector<uint8_t> data, scale;
  float tensor_scale;
};

struct Bf16Storage {
  Bf16Storage(uint64_t seed, int64_t n, int64_t k) : n(n), k(k) {
    for (int64_t i = 0; i < n * k; ++i) {
      data.push_back(FloatToBf16(RandomValue(seed, static_cast<uint64_t>(i))));
    }
  }
  Bf16Weight view() const { return {data.data(), n, k}; }
  int64_t n, k;
  std::vector<uint16_t> data;
};

}  // namespace dsv4::test
