// SPDX-License-Identifier: Apache-2.0
// CPU benchmarks on fewer instructions than the processor has.
#pragma once

#include <string_view>

#include "hwy/targets.h"
#include "kernels/cpu/dot.h"

namespace dsv4 {

// Makes do without AMX (avx512bf16), AVX512-BF16 and VNNI (avx512) or AVX-512 (avx2); false for
// another name.
inline bool LimitInstructions(std::string_view name) {
  if (name == "avx512bf16") {
    AllowDotExtensions(DotExtension::kAvx512Bf16);
    return true;
  }
  if (name != "avx512" && name != "avx2") return false;
  AllowDotExtensions(DotExtension::kNone);
  if (name == "avx2") hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~HWY_AVX3);
  return true;
}

}  // namespace dsv4
