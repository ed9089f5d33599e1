// SPDX-License-Identifier: Apache-2.0
// Operations on the f32 results of a matrix product: rounding, quantising, SwiGLU, the sum of
// experts, the gate's score. The bits of a value depend on its own row alone.
#pragma once

#include <cstdint>

namespace dsv4 {

// y[i, :] = bf16 of x[i, :], for m rows of n values; strides in elements.
void RoundRows(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
               int64_t y_stride);

// As RoundRows, then the act_quant round trip over runs of 128. n is a multiple of 128.
void RoundQuantiseRows(const float* x, int64_t x_stride, int64_t m, int64_t n, uint16_t* y,
                       int64_t y_stride);

// y[i, :] = bf16 of silu(min(g, limit)) * clamp(u, -limit, limit) * weights[i], with g and u the
// rounded gate and up; limit 0 = none, weights null = 1. n is a multiple of 16.
void SwigluRows(const float* gate, const float* up, int64_t stride, int64_t m, int64_t n,
                float limit, const float* weights, uint16_t* y, int64_t y_stride);

// y[i, :] = its act_quant round trip over runs of 128. n is a multiple of 128.
void QuantiseRows(uint16_t* y, int64_t y_stride, int64_t m, int64_t n);

// y[:] = bf16 of the sum of rows[0], ..., rows[count - 1] in this order, in f32. n is a multiple of
// 16.
void SumRows(const uint16_t* const* rows, int64_t count, int64_t n, uint16_t* y);

// x[i] = sqrt(softplus(x[i])).
void SqrtSoftplus(float* x, int64_t n);

}  // namespace dsv4
