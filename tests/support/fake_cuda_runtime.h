// SPDX-License-Identifier: Apache-2.0
// A GPU that is not there. An executable that links fake_cuda_runtime.cc has, instead of the CUDA
// runtime, functions of the same names that need no device: memory is the host's and reads as
// zeros, copies to it and kernels leave no trace but their launches. So what the host does for a
// GPU can be tested on a machine without one, for GPUs that no test machine has, and with
// failures at any of its calls. One that works copies, and runs kernels that were compiled for the
// host (tests/emulation). It is as late as it may be: what is enqueued is done when somebody waits
// for it, and an event has not come before.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dsv4::test {

struct FakeCuda {
  std::string name = "fake";
  int32_t compute_capability = 120;  // 10 * major + minor
  int32_t multiprocessors = 188;
  bool integrated = false;   // in the host's memory
  bool works = false;        // else all that is enqueued is forgotten
  bool stuck_clock = false;  // no time passes between events
  int64_t bytes = int64_t{96} << 30;
  // Each 32 bits of new pinned memory: what kernels write there. 2 makes all lists of candidates
  // (kernels/op/token_candidates.h) ones of token 2.
  int32_t pinned = 0;
  // The call, counted from 0, from which on all fail, as they do once a kernel has faulted; and the
  // allocation from which on there is no memory. Below 0: none.
  int64_t failing_call = -1, failing_allocation = -1;
  // Called at each launch that is not recorded, with how many of them there have been.
  std::function<void(int64_t)> on_launch = {};
};

// The one GPU from here on, as new. Not while anything of the one before is left.
void SetFakeCuda(const FakeCuda& gpu);

struct FakeCudaUse {
  int64_t calls = 0;        // that may fail
  int64_t allocations = 0;  // of the GPU's memory and pinned
  int64_t left = 0;         // allocations, streams, events and graphs that are still there
  bool failed = false;      // a call did
};
FakeCudaUse GetFakeCudaUse();

// The next cudaGetLastError of any thread has one, which is not sticky: as a launch leaves it that
// cannot be, or a host's own call.
void LeaveFakeCudaError();

struct FakeLaunch {
  std::string symbol;            // of the kernel's machine code
  const void* kernel = nullptr;  // one in a header is another in each file that includes it
  int64_t blocks[3] = {};
  int64_t threads = 0;            // of a block
  int64_t shared_bytes = 0;       // dynamic ones
  int64_t most_shared_bytes = 0;  // that the kernel was allowed by then
  bool recorded = false;          // for a graph
  int64_t ahead = 0;              // launches that were not waited for, this one included
};

// Those since the last call, on any thread. Graphs' replays are none.
std::vector<FakeLaunch> TakeFakeLaunches();

}  // namespace dsv4::test
