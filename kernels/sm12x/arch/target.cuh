// SPDX-License-Identifier: Apache-2.0
// Features of the compilation target.
#pragma once

// mma.sync with block scales: SM12x, in family-specific images. Not in the second set of kernels,
// nor in a build with the CMake option DSV4_PORTABLE_MMA.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200 && \
    !defined(DSV4_PORTABLE_MMA)
#define DSV4_BLOCK_SCALED_MMA 1
#else
#define DSV4_BLOCK_SCALED_MMA 0
#endif
