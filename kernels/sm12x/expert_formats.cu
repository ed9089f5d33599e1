// SPDX-License-Identifier: Apache-2.0
// Launches of expert_ffn for routed experts in other formats than MXFP4: FP8 with F32 scales for
// each 128 x 128, and NVFP4; the shared expert is FP8 with F32 or E8M0 scales.
// Roofline: each distinct expert's 3 D I bytes of FP8, or 3 D I (1/2 + 1/16) of NVFP4; else
//   expert_ffn.cu's.
// Plan: expert_ffn.cu's, without its kernels for up to eight rows.
//   Scales that are no powers of two are multiplied on behind the MMAs of a K slice: those of FP8's
//   blocks and of NVFP4's tensors. NVFP4's codes and the scales of their runs of 16 are f16 numbers
//   together, and meet the activations as f16.
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
