// SPDX-License-Identifier: Apache-2.0
// Stands for kernels/sm12x/arch/threads.cuh.
#pragma once

#include "tests/emulation/device.h"

namespace dsv4::sm12x {

inline void WaitAtBarrier(int id, int threads) { emulation::SyncSome(id, threads); }
inline int FreshThread(int) { return static_cast<int>(threadIdx.x); }
inline void Forget(uint4*) {}

}  // namespace dsv4::sm12x
