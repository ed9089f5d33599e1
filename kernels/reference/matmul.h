// SPDX-License-Identifier: Apache-2.0
// The one product core of the reference backend and the matrix product built on it. Sums run over k
// in ascending order, in double, which holds the product of two floats exactly: an output's bits
// depend on its two vectors alone, on every instruction set, and what is rounded to bf16 is right,
// except for ties.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/op/op.h"
#include "lib/tensor/quant_format.h"

namespace dsv4::reference {

inline constexpr int64_t kTileRows = 8;    // rows of `a` of one AddProducts
inline constexpr int64_t kTileLanes = 16;  // columns of `b`

// total[r * total_stride + l] += sum_i a[r * a_stride + i] * b[i * b_stride + l], for 8 rows r,
// lanes l < `lanes` <= 16 and i < k. Reads 16 lanes of b: callers pad with readable memory and
// ignore the padding's results.
void AddProducts(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k,
                 double* total, int64_t total_stride, int64_t lanes = kTileLanes);

// Writes columns [0, 16) of the transpose of `rows` <= 16 rows of x to out [k, 16], zeros beyond.
void TransposeTile(const float* const* rows, int64_t row_count, int64_t k, float* out);

struct MatmulParams {
  int64_t rows = 0;                 // M
  int64_t k = 0;                    // K
  const float* x = nullptr;         // [M, K]
  int64_t x_stride = 0;             // floats from one row to the next
  const int32_t* row_of = nullptr;  // [M]: row m is row_of[m] of x; null = m
  int64_t n = 0;                    // N
  float* y = nullptr;               // [M, N]
  int64_t y_stride = 0;
  bool int8_input = false;  // rounds x as lib/tensor/int8_run.h says
};

// Activation rows of one pass over the weights; more rows need more passes.
inline constexpr int64_t kMatmulPassRows = 256;

int64_t MatmulWorkspaceFloats(int64_t rows, int64_t k, int threads);

// y = x w^T. `load_row` writes row n of w, [K] f32, and is called concurrently. `workspace` has
// MatmulWorkspaceFloats. Rounds nothing to bf16.
void Matmul(const LaunchContext& context, const MatmulParams& params,
            absl::FunctionRef<void(int64_t n, float* out)> load_row, float* workspace);

// Row n of a weight as f32 [k].
void LoadRow(const Fp8Weight& weight, int64_t n, float* out);
void LoadRow(const Fp4Weight& weight, int64_t n, float* out);
void LoadRow(const Nvfp4Weight& weight, int64_t n, float* out);
void LoadRow(const ExpertMatrix& weight, int64_t n, float* out);
void LoadRow(const Bf16Weight& weight, int64_t n, float* out);

// Whether the input of a product with this weight is rounded to int8.
bool RoundsInput(const LaunchContext& context, const Fp8Weight& weight);
bool RoundsInput(const LaunchContext& context, const Bf16Weight& weight);
bool RoundsInput(const LaunchContext& context, const ExpertMatrix& weight);

// y = x w^T of a weight and contiguous rows: x [.., w.k], y [rows, w.n]. `row_of` as in
// MatmulParams.
template <class Weight>
void Linear(const LaunchContext& context, const Weight& w, const float* x, const int32_t* row_of,
            int64_t rows, float* y, float* workspace) {
  const MatmulParams params{rows, w.k, x, w.k, row_of, w.n, y, w.n, RoundsInput(context, w)};
  Matmul(
      context, params, [&](int64_t n, float* out) { LoadRow(w, n, out); }, workspace);
}

}  // namespace dsv4::reference
