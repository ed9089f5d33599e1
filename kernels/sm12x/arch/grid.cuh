// SPDX-License-Identifier: Apache-2.0
// A grid that starts before its predecessor in the stream is done (programmatic dependent launch).
#pragma once

namespace dsv4::sm12x {

// Until all grids before this one are done and what they wrote can be read.
__device__ __forceinline__ void WaitForPredecessors() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// From here on, once every block has come this far or ended, the next grid's blocks may start.
__device__ __forceinline__ void LetSuccessorStart() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace dsv4::sm12x
