// SPDX-License-Identifier: Apache-2.0
// The entries of the SIMD backend, each defined in the file of its operator.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

extern const KernelEntry kCpuLinearFp8;
extern const KernelEntry kCpuLinearBf16;
extern const KernelEntry kCpuOutputGroups;
extern const KernelEntry kCpuMoeGate;
extern const KernelEntry kCpuExpertFfn;

}  // namespace dsv4
