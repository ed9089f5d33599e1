// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/row_math.h"

#include "kernels/op/rope.h"
#include "lib/tensor/dtype.h"

namespace dsv4::reference {
namespace {

void Rotate(float* x, const float* table, float sine_sign) {
  for (int64_t i = 0; i < kRopePairs; ++i) {
    const float cosine = table[i], sine = sine_sign * table[kRopePairs + i];
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine - b * sine;
    x[2 * i + 1] = a * sine + b * cosine;
  }
}

}  // namespace

float InverseRms(const float* x, int64_t count, float eps) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * x[i];
  return static_cast<float>(1 / std::sqrt(sum / static_cast<double>(count) + eps));
}

void RmsNormRow(const float* x, int64_t count, const uint16_t* weight, float eps, float* out) {
  const float inverse = InverseRms(x, count, eps);
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * inverse * Bf16ToFloat(weight[i]);
}

void ApplyRope(float* x, const float* table) { Rotate(x, table, 1); }

void ApplyInverseRope(float* x, const float* table) { Rotate(x, table, -1); }

void Hadamard128(float* x) {
  for (int64_t half = 1; half < kHadamardSize; half *= 2) {
    for (int64_t begin = 0; begin < kHadamardSize; begin += 2 * half) {
      for (int64_t i = begin; i < begin + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < kHadamardSize; ++i) x[i] *= 0.08838834764831845f;  // 128^-0.5
}

}  // namespace dsv4::reference
