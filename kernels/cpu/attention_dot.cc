// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_dot.h"

#include "kernels/cpu/dot.h"

namespace dsv4 {

const AttentionDot* ActiveAttentionDot() {
#if defined(__x86_64__)
  const DotKernels* const dot = &ActiveDotKernels();
  if (dot == &kDotAvx512Bf16 || dot == AmxDotKernels()) return &kAttentionDotAvx512Bf16;
#endif
  return nullptr;
}

}  // namespace dsv4
