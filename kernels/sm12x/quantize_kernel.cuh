// SPDX-License-Identifier: Apache-2.0
// A kernel that quantises bf16 rows: act_quant of runs of 128. For operators in which no block has
// the products of a whole run.
#pragma once

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/quantized_rows.cuh"

namespace dsv4::sm12x {

inline constexpr int kQuantizeThreads = 256;

// x [rows, dim] bf16, to quantised rows of `dim`. A thread takes eight elements.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const uint16_t* x, int64_t dim, uint8_t* out) {
  // First, so that the next kernel loads its weights while this one waits and works.
  LetSuccessorStart();
  WaitForPredecessors();
  const int64_t row = blockIdx.y;
  const int64_t column = (int64_t{blockIdx.x} * kQuantizeThreads + threadIdx.x) * 8;
  const bool active = column < dim;
  float v[8] = {};
  if (active) LoadBf16x8(x + row * dim + column, v);
  StoreQuantized(v, active, column, dim, out + row * QuantizedRowBytes(dim));
}

inline void LaunchQuantize(cudaStream_t stream, const uint16_t* x, int64_t rows, int64_t dim,
                           uint8_t* out) {
  constexpr int kColumns = kQuantizeThreads * 8;
  constexpr int64_t kMaxRows = 65535;  // of one grid
  for (int64_t first = 0; first < rows; first += kMaxRows) {
    const dim3 blocks(static_cast<unsigned>((dim + kColumns - 1) / kColumns),
                      static_cast<unsigned>(rows - first < kMaxRows ? rows - first : kMaxRows));
    LaunchOverlapped(stream, blocks, kQuantizeThreads, 0, quantize_kernel<kQuantizeThreads>,
                     x + first * dim, dim, out + first * QuantizedRowBytes(dim));
  }
}

}  // namespace dsv4::sm12x
