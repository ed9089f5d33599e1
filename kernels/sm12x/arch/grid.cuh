// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a grid may start before its predecessor in the stream has ended.
#pragma once

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// Waits until all earlier grids of the stream have ended and their writes are visible.
__device__ __forceinline__ void WaitForPredecessors() {
  DSV4_PTX_VOLATILE("griddepcontrol.wait;" ::: "memory");
}

// Blocks of the next grid may start once every block of this one has called this or ended.
__device__ __forceinline__ void LetSuccessorStart() {
  DSV4_PTX_VOLATILE("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace dsv4::sm12x
