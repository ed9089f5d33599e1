// SPDX-License-Identifier: Apache-2.0
// rms_norm: normed = x * rsqrt(mean(x^2) + eps) * weight, also quantised.
//
// Contract: kernels/op/dense.h; dim a multiple of 8 here, of 128 if quantised.
//
// Roofline: 2 dim bytes read, 2 dim and about dim written a row. Bound by latency at one row, by
// bandwidth at many.
//
// Plan: a block of 256 threads for each row. The second pass reads the row from L1.
//
// Edge cases: none; padding rows are computed like others.
#include "kernels/op/dense.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/norm_row.cuh"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::rms_norm {

__global__ void __launch_bounds__(sm12x::kNormThreads)
    rms_norm_kernel(const __grid_constant__ RmsNormParams p) {
  sm12x::LetSuccessorStart();
  __shared__ float scratch[sm12x::kNormThreads / 32];
  const int64_t row = blockIdx.x;
  sm12x::PrefetchLines(p.weight, p.dim * 2, sm12x::kNormThreads);
  sm12x::WaitForPredecessors();
  const uint16_t* x = static_cast<const uint16_t*>(p.x) + row * p.dim;
  float sum = 0;
  for (int64_t column = threadIdx.x * 8; column < p.dim; column += sm12x::kNormThreads * 8) {
    float v[8];
    sm12x::LoadBf16x8(x + column, v);
    sum = sm12x::SquaresOf(v, sum);
  }
  sm12x::NormalizeRow(
      x, sum, p.dim, p.weight, p.eps,
      p.normed == nullptr ? nullptr : static_cast<uint16_t*>(p.normed) + row * p.dim,
      p.quantized == nullptr
          ? nullptr
          : static_cast<uint8_t*>(p.quantized) + row * sm12x::QuantizedRowBytes(p.dim),
      scratch);
}

absl::Status SupportsRmsNorm(const RmsNormParams& p) {
  return p.dim % 8 == 0 ? absl::OkStatus() : Unsupported("dim ", p.dim, " is not a multiple of 8");
}

void LaunchRmsNorm(const LaunchContext& context, const RmsNormParams& params) {
  sm12x::LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(params.rows)),
                          sm12x::kNormThreads, 0, rms_norm_kernel, params);
}

}  // namespace sm12x::rms_norm
using namespace sm12x::rms_norm;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xRmsNorm =
    MakeSm12xEntry<RmsNormParams, &LaunchRmsNorm, &SupportsRmsNorm>("sm12x.rms_norm", 2);

}  // namespace dsv4
