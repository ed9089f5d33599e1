// SPDX-License-Identifier: Apache-2.0
// rope_table: cos and sin of fp32(position * f) for the positions of a step.
// Contract: kernels/op/rope.h.
// Roofline: 1 KB written a row; about 60 f64 operations a value.
// Plan: a block of 128 threads for each row, with a warp for each of the four tables and a lane for
//   each pair. It runs once a step, so f64 is affordable. The angle is reduced by a 100-bit 2 pi.
//   sincospi then needs no table of pi's digits, and not the stack that sincos uses for one.
// Edge cases: a row that ends no compressed block of a ratio leaves that ratio's table unchanged.
#include "kernels/op/rope.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::rope_table {

constexpr int kTables = 4;

__global__ void __launch_bounds__(kTables * 32)
    rope_table_kernel(const __grid_constant__ RopeTableParams p) {
  sm12x::BeginAfterPredecessors();
  const int64_t row = blockIdx.x;
  const int table = threadIdx.x / 32, pair = threadIdx.x % 32;
  int64_t position = p.positions[row];
  const int64_t ratio = table == 2 ? kCsaRatio : table == 3 ? kHcaRatio : 1;
  if ((position + 1) % ratio != 0) return;
  position += 1 - ratio;
  float* out = table == 0   ? p.out.window
               : table == 1 ? p.out.compressed
               : table == 2 ? p.out.ratio4
                            : p.out.ratio128;
  const float frequency = table == 0 ? p.frequencies.window[pair] : p.frequencies.compressed[pair];
  const double angle = __fmul_rn(static_cast<float>(position), frequency);
  const double turns = rint(angle * 0.15915494309189533577);
  double rest = fma(turns, -6.283185307179586477, angle);
  rest = fma(turns, -2.449293598294706414e-16, rest);
  double sine, cosine;
  sincospi(rest * 0.31830988618379067154, &sine, &cosine);
  out[row * 64 + pair] = static_cast<float>(cosine);
  out[row * 64 + 32 + pair] = static_cast<float>(sine);
}

void LaunchRopeTable(const LaunchContext& context, const RopeTableParams& params) {
  sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)),
                          kTables * 32, 0, rope_table_kernel, params);
}

}  // namespace sm12x::rope_table
using namespace sm12x::rope_table;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xRopeTable =
    MakeSm12xEntry<RopeTableParams, &LaunchRopeTable>("sm12x.rope_table", 1);

}  // namespace dsv4
