// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_dot.h"

#include "kernels/cpu/dot.h"

namespace dsv4 {

const AttentionDot* ActiveAttentionDot() {
#if defined(__x86_64__)
  if (&ActiveDotKernels() == &kDotAvx512Bf16) return &kAttentionDotAvx512Bf16;
#endif
  return nullptr;
}

}  // namespace dsv4
