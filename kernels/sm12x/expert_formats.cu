// SPDX-License-Identifier: Apache-2.0
// Launches of expert_ffn for routed experts in other formats than MXFP4: FP8 with F32 scales for
// each 128 x 128, and NVFP4. The shared expert is FP8 with F32 or E8M0 scales.
// Roofline: for each distinct expert 3 D I bytes of FP8, or 3 D I (1/2 + 1/16) of NVFP4; the rest
//   as in expert_ffn.cu.
// Plan: that of expert_ffn.cu, without its kernels for up to eight rows.
//   - Scales that are not powers of two multiply the products of a K slice after its MMAs: FP8's
//     block scales and NVFP4's tensor scale.
//   - The products of a run of 16 NVFP4 codes are one block-scaled MMA, which the run's scale
//     multiplies afterwards. In the portable fallback a code times its scale is an f16 number.
#include "kernels/sm12x/expert_launch.cuh"

namespace dsv4::sm12x {

void LaunchOtherSplit(const LaunchContext& context, const ExpertFfnParams& p,
                      const FfnWorkspace& work, int64_t groups) {
  p.format == ExpertFormat::kFp8 ? LaunchSplit<Fp8F32Slices, Fp8F32Slices>(context, p, work, groups)
                                 : LaunchSplit<Nvfp4Slices, Fp8F32Slices>(context, p, work, groups);
}

namespace {

template <bool kUp>
void LaunchHalf(const LaunchContext& context, const ExpertFfnParams& p, const FfnWorkspace& work) {
  p.format == ExpertFormat::kFp8 ? LaunchGemms<Fp8F32Slices, Fp8F32Slices, kUp>(context, p, work)
                                 : LaunchGemms<Nvfp4Slices, Fp8F32Slices, kUp>(context, p, work);
}

}  // namespace

void LaunchOtherGemms(const LaunchContext& context, const ExpertFfnParams& p,
                      const FfnWorkspace& work, bool up) {
  up ? LaunchHalf<true>(context, p, work) : LaunchHalf<false>(context, p, work);
}

}  // namespace dsv4::sm12x
