// SPDX-License-Identifier: Apache-2.0
// What tests of the SIMD backend's matrix operators share: random weights in the stored formats,
// plain scalar arithmetic written from design texts alone (doubles, and bf16 and e4m3 rounding by
// search), and the loop over every instruction-set variant that this processor can run.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "kernels/cpu/dot.h"
#include "lib/tensor/quant_format.h"
#include "tests/support/catch.h"

namespace dsv4::test {

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest, ties to even, from a double: no double rounding on the way.
inline uint16_t ToBf16(double value) {
  const double magnitude = std::abs(value);
  if (magnitude == 0) return std::signbit(value) ? 0x8000 : 0;
  const int exponent = std::max(std::ilogb(magnitude), -126);
  const double steps = std::nearbyint(std::ldexp(magnitude, 7 - exponent));  // of 2^(exponent - 7)
  const float rounded = static_cast<float>(std::ldexp(steps, exponent - 7));
  return static_cast<uint16_t>(
      std::bit_cast<uint32_t>(std::copysign(rounded, static_cast<float>(value))) >> 16);
}

inline double RoundBf16(double value) { return Bf16ToFloat(ToBf16(value)); }

// The e4m3 value nearest to `value`, by search; a tie goes to the even code.
inline double RoundE4M3(double value) {
  const double magnitude = std::min(std::abs(value), 448.0);
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const double distance = std::abs(E4M3ToFloat(static_cast<uint8_t>(code)) - magnitude);
    const double best_distance = std::abs(E4M3ToFloat(static_cast<uint8_t>(best)) - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return std::copysign(E4M3ToFloat(static_cast<uint8_t>(best)), value);
}

// act_quant round trip over runs of 128, in place.
inline void ActQuant(double* x, int64_t n) {
  for (int64_t run = 0; run < n; run += 128) {
    double amax = 1e-4f;
    for (int64_t i = run; i < run + 128; ++i) amax = std::max(amax, std::abs(x[i]));
    const float ratio = static_cast<float>(amax) / 448.0f;
    int exponent = 0;
    const float mantissa = std::frexp(ratio, &exponent);  // in [0.5, 1)
    const double scale = std::ldexp(1.0, mantissa == 0.5f ? exponent - 1 : exponent);
    for (int64_t i = run; i < run + 128; ++i) x[i] = RoundE4M3(x[i] / scale) * scale;
  }
}

using Rng = std::mt19937_64;

inline uint8_t RandomByte(Rng& rng) { return static_cast<uint8_t>(rng()); }

// A weight that owns its memory. View() is what kernels get; At() its value by the format's words.
struct Fp8Matrix {
  int64_t n, k;
  std::vector<uint8_t> data, scale;

  Fp8Matrix(int64_t rows, int64_t cols, Rng& rng)
      : n(rows), k(cols), data(rows * cols), scale((rows + 127) / 128 * ((cols + 127) / 128)) {
    for (uint8_t& byte : data) {
      do byte = RandomByte(rng);
      while ((byte & 0x7f) == 0x7f);
    }
    for (uint8_t& byte : scale) byte = static_cast<uint8_t>(119 + rng() % 9);
  }
  Fp8Weight View() const { return {data.data(), scale.data(), n, k}; }
  double At(int64_t o, int64_t i) const {
    return double{E4M3ToFloat(data[o * k + i])} *
           std::ldexp(1.0, scale[o / 128 * ((k + 127) / 128) + i / 128] - 127);
  }
};

struct Fp4Matrix {
  int64_t n, k;
  std::vector<uint8_t> data, scale;

  Fp4Matrix(int64_t rows, int64_t cols, Rng& rng)
      : n(rows), k(cols), data(rows * cols / 2), scale(rows * cols / 32) {
    for (uint8_t& byte : data) byte = RandomByte(rng);
    for (uint8_t& byte : scale) byte = static_cast<uint8_t>(121 + rng() % 7);
  }
  Fp4Weight View() const { return {data.data(), scale.data(), n, k}; }
  double At(int64_t o, int64_t i) const {
    const uint8_t byte = data[(o * k + i) / 2];
    return double{E2M1ToFloat(i % 2 == 0 ? byte & 15 : byte >> 4)} *
           std::ldexp(1.0, scale[(o * k + i) / 32] - 127);
  }
};

// Under F32 scales, none a power of two; At() may round to bf16, as the output projection does.
struct Fp8F32Matrix : Fp8Matrix {
  std::vector<float> f32_scale;
  bool rounded = false;

  Fp8F32Matrix(int64_t rows, int64_t cols, Rng& rng) : Fp8Matrix(rows, cols, rng) {
    for (const uint8_t byte : scale) {
      f32_scale.push_back(std::ldexp(1 + static_cast<float>(1 + rng() % 63) / 64, byte - 128));
    }
  }
  Fp8Weight View() const { return {data.data(), nullptr, n, k, f32_scale.data()}; }
  double At(int64_t o, int64_t i) const {
    const double value =
        double{E4M3ToFloat(data[o * k + i])} * f32_scale[o / 128 * ((k + 127) / 128) + i / 128];
    return rounded ? RoundBf16(value) : value;
  }
};

struct Nvfp4Matrix {
  int64_t n, k;
  std::vector<uint8_t> data, scale;
  float tensor_scale;

  Nvfp4Matrix(int64_t rows, int64_t cols, Rng& rng)
      : n(rows),
        k(cols),
        data(rows * cols / 2),
        scale(rows * cols / 16),
        tensor_scale(std::ldexp(1.3f, -9)) {
    for (uint8_t& byte : data) byte = RandomByte(rng);
    for (uint8_t& byte : scale) byte = static_cast<uint8_t>((9 + rng() % 3) << 3 | rng() % 8);
  }
  Nvfp4Weight View() const { return {data.data(), scale.data(), n, k, tensor_scale}; }
  double At(int64_t o, int64_t i) const {
    const uint8_t byte = data[(o * k + i) / 2];
    return double{E2M1ToFloat(i % 2 == 0 ? byte & 15 : byte >> 4)} *
           E4M3ToFloat(scale[(o * k + i) / 16]) * tensor_scale;
  }
};

struct Bf16Matrix {
  int64_t n, k;
  std::vector<uint16_t> data;

  Bf16Matrix(int64_t rows, int64_t cols, Rng& rng) : n(rows), k(cols), data(rows * cols) {
    std::normal_distribution<double> normal(0, 0.1);
    for (uint16_t& bits : data) bits = ToBf16(normal(rng));
  }
  Bf16Weight View() const { return {data.data(), n, k}; }
  double At(int64_t o, int64_t i) const { return Bf16ToFloat(data[o * k + i]); }
};

// Activations [rows, k]: normal values of very different rows, some zeros.
inline std::vector<uint16_t> RandomRows(int64_t rows, int64_t k, Rng& rng) {
  std::normal_distribution<double> normal;
  std::vector<uint16_t> x(rows * k);
  for (int64_t t = 0; t < rows; ++t) {
    const double size = std::ldexp(1.0, static_cast<int>(rng() % 7) - 3);
    for (int64_t i = 0; i < k; ++i) {
      x[t * k + i] = ToBf16(rng() % 16 == 0 ? 0.0 : size * normal(rng));
    }
  }
  return x;
}

// The same, as an act_quant round trip leaves them.
inline std::vector<uint16_t> RandomQuantisedRows(int64_t rows, int64_t k, Rng& rng) {
  std::vector<uint16_t> x = RandomRows(rows, k, rng);
  std::vector<double> row(k);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < k; ++i) row[i] = Bf16ToFloat(x[t * k + i]);
    ActQuant(row.data(), k);
    for (int64_t i = 0; i < k; ++i) x[t * k + i] = ToBf16(row[i]);
  }
  return x;
}

// A sum of products and the sum of their magnitudes, which bounds an f32 sum's error.
struct DotTruth {
  double value = 0, magnitude = 0;
  double Bound() const { return magnitude * 0x1p-20; }
};

template <class Matrix>
DotTruth Dot(const uint16_t* x, const Matrix& w, int64_t o) {
  DotTruth truth;
  for (int64_t i = 0; i < w.k; ++i) {
    const double product = Bf16ToFloat(x[i]) * w.At(o, i);
    truth.value += product;
    truth.magnitude += std::abs(product);
  }
  return truth;
}

// Calls f(name) once for each variant of the SIMD code that this build has and this processor runs.
template <class F>
void ForEachVariant(F&& f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const DotKernels* last = nullptr;
    for (const DotExtension extension :
         {DotExtension::kNone, DotExtension::kAvx512Bf16, DotExtension::kAmx}) {
      AllowDotExtensions(extension);
      if (&ActiveDotKernels() == last) continue;
      last = &ActiveDotKernels();
      f(std::string(last->name));
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace dsv4::test
