// SPDX-License-Identifier: Apache-2.0
// The dot products by AMX. Others ask AmxDotKernels.
#pragma once

#include "kernels/cpu/dot.h"

namespace dsv4 {

extern const DotKernels kDotAmx;

}  // namespace dsv4
