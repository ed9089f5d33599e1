// SPDX-License-Identifier: Apache-2.0
// Features of the compilation target.
#pragma once

// mma.sync with block scales: SM12x, in family-specific images.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200
#define DSV4_BLOCK_SCALED_MMA 1
#else
#define DSV4_BLOCK_SCALED_MMA 0
#endif
