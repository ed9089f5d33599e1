// SPDX-License-Identifier: Apache-2.0
// Arithmetic on single rows that several reference operators share: RMSNorm, RoPE, the Hadamard
// rotation, the logistic function. Each result is computed in double and rounded once to f32, so
// that it lies on the same side of a quantiser's boundary as the true value almost always. No
// rounding to bf16 here.
#pragma once

#include <cmath>
#include <cstdint>

namespace dsv4::reference {

inline constexpr int64_t kHadamardSize = 128;

// 1 / sqrt(mean(x^2) + eps).
double InverseRms(const float* x, int64_t count, float eps);

// out = x * InverseRms(x) * weight; `weight` is bf16 [count]; out may be x.
void RmsNormRow(const float* x, int64_t count, const uint16_t* weight, float eps, float* out);

// Rotates the 32 pairs (2i, 2i + 1) of x [64] by the angles of `table`: 32 cosines, 32 sines.
void ApplyRope(float* x, const float* table);
void ApplyInverseRope(float* x, const float* table);

// Walsh-Hadamard transform of size 128 times 128^-0.5, in place.
void Hadamard128(float* x);

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace dsv4::reference
