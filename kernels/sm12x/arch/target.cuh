// SPDX-License-Identifier: Apache-2.0
// The compilation target: its features, and inline PTX.
#pragma once

// mma.sync with block scales: SM12x, in family-specific images. Not in the second set of kernels,
// nor in a build with the CMake option DSV4_PORTABLE_MMA.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1200 && \
    !defined(DSV4_PORTABLE_MMA)
#define DSV4_BLOCK_SCALED_MMA 1
#else
#define DSV4_BLOCK_SCALED_MMA 0
#endif

// As `asm` and `asm volatile`. The compiler of the host's part of these files has no PTX: there
// they end the program (kernels/sm12x/host/device.h).
#ifndef DSV4_PTX
#define DSV4_PTX asm
#define DSV4_PTX_VOLATILE asm volatile
#endif
