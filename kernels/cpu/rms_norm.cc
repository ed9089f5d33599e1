// SPDX-License-Identifier: Apache-2.0
// rms_norm: RMSNorm of each row and its act_quant round trip in one pass over the cached row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/row_math-inl.h"
#include "kernels/op/dense.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {

void RmsNormRows(const RmsNormParams& p, int64_t begin, int64_t end) {
  const auto at = [&](void* base, int64_t row) {
    return base == nullptr ? nullptr : static_cast<uint16_t*>(base) + row * p.dim;
  };
  for (int64_t r = begin; r < end; ++r) {
    RmsNormRow(static_cast<const uint16_t*>(p.x) + r * p.dim, p.weight, p.dim, p.eps,
               at(p.normed, r), at(p.quantized, r));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(RmsNormRows);

absl::Status SupportsRmsNorm(const RmsNormParams& p) {
  return p.dim % 128 == 0 ? absl::OkStatus()
                          : Unsupported("cpu.rms_norm: dim ", p.dim, " is not a multiple of 128");
}

void LaunchRmsNorm(const LaunchContext& context, const RmsNormParams& params) {
  const auto rows = HWY_DYNAMIC_DISPATCH(RmsNormRows);
  ForRowBlocks(context, params.rows, BlockRows(params.dim * 6),
               [&](int64_t begin, int64_t end, int) { rows(params, begin, end); });
}

}  // namespace

constinit const KernelEntry kCpuRmsNorm =
    MakeEntry<RmsNormParams, &LaunchRmsNorm, &SupportsRmsNorm>(
        "cpu.rms_norm", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
