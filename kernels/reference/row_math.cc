// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/row_math.h"

#include <algorithm>

#include "kernels/op/rope.h"
#include "lib/tensor/dtype.h"

namespace dsv4::reference {
namespace {

void Rotate(float* x, const float* table, double sine_sign) {
  for (int64_t i = 0; i < kRopePairs; ++i) {
    const double cosine = table[i], sine = sine_sign * table[kRopePairs + i];
    const double a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = static_cast<float>(a * cosine - b * sine);
    x[2 * i + 1] = static_cast<float>(a * sine + b * cosine);
  }
}

}  // namespace

double InverseRms(const float* x, int64_t count, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * x[i];
  return 1 / std::sqrt(sum / static_cast<double>(count) + eps);
}

void RmsNormRow(const float* x, int64_t count, const uint16_t* weight, float eps, float* out) {
  const double inverse = InverseRms(x, count, eps);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(x[i] * inverse * Bf16ToFloat(weight[i]));
  }
}

void ApplyRope(float* x, const float* table) { Rotate(x, table, 1); }

void ApplyInverseRope(float* x, const float* table) { Rotate(x, table, -1); }

void Hadamard128(float* x) {
  double y[kHadamardSize];
  std::copy_n(x, kHadamardSize, y);
  for (int64_t half = 1; half < kHadamardSize; half *= 2) {
    for (int64_t begin = 0; begin < kHadamardSize; begin += 2 * half) {
      for (int64_t i = begin; i < begin + half; ++i) {
        const double a = y[i], b = y[i + half];
        y[i] = a + b;
        y[i + half] = a - b;
      }
    }
  }
  const double scale = 1 / std::sqrt(double{kHadamardSize});
  for (int64_t i = 0; i < kHadamardSize; ++i) x[i] = static_cast<float>(y[i] * scale);
}

}  // namespace dsv4::reference
