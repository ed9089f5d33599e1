// SPDX-License-Identifier: Apache-2.0
// What the target that is compiled for has.
#pragma once

// mma.sync with block scales: SM12x, in images that are specific to its family.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200
#define DSV4_BLOCK_SCALED_MMA 1
#else
#define DSV4_BLOCK_SCALED_MMA 0
#endif
