// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dot.h"

namespace dsv4 {

// GCC 12's tile intrinsics cast a stride to `long`, of 32 bits here, which the assembler refuses.
const DotKernels* AmxDotKernels() { return nullptr; }

}  // namespace dsv4
