// SPDX-License-Identifier: Apache-2.0
// A fake CUDA runtime. An executable that links fake_cuda_runtime.cc has functions with the names
// of the CUDA runtime that need no device. Memory is host memory and reads as zeros; copies to it
// have no effect; kernels only record their launches. So the host's part can be tested without a
// GPU, for GPUs that no test machine has, and with failures at any call. With `works`, copies are
// made and kernels run that were compiled for the host (tests/emulation), as late as allowed:
// enqueued work is done when it is waited for, and no event completes before.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace dsv4::test {

// One of several GPUs of different kinds.
struct FakeGpu {
  std::string name = "fake";
  int32_t compute_capability = 120;
  int32_t multiprocessors = 188;
  bool integrated = false;
  int64_t bytes = int64_t{96} << 30;
  int64_t used = 0;  // of them, by other processes
};

struct FakeCuda {
  std::string name = "fake";
  int32_t compute_capability = 120;  // 10 * major + minor
  int32_t multiprocessors = 188;
  int32_t count = 1;          // such GPUs; 0: the driver finds none. All share one memory
  bool prohibited = false;    // by its compute mode
  bool integrated = false;    // in the host's memory
  bool display = false;       // kernels have a run-time limit
  bool side_by_side = false;  // processes share its multiprocessors (MPS)
  int driver_cuda = 13000;    // that the driver supports; below 13000 it is too old for the runtime
  bool works = false;         // false: enqueued work is dropped
  bool stuck_clock = false;   // no time passes between events
  int64_t bytes = int64_t{96} << 30;
  bool pages = false;   // allocations beyond them succeed, as on Windows
  double slowness = 1;  // of copies: the time between two events is so many times as long
  int64_t pinnable = std::numeric_limits<int64_t>::max();  // bytes of pinned memory in all
  // Each 32 bits of new pinned memory: what kernels write there. 2 makes all lists of candidates
  // (kernels/op/token_candidates.h) ones of token 2.
  int32_t pinned = 0;
  // The number of the first call that fails, from 0. All later calls fail too, as after a fault of
  // a kernel. And the number of the first allocation that fails. Below 0: none.
  int64_t failing_call = -1, failing_allocation = -1;
  bool refuses_map =
      false;  // failing_allocation fails as one that peers cannot map; not out of memory
  bool illegal_instruction = false;  // what failing_call fails of; false: an illegal address
  // The number of the first call that does not return, from 0, as no later one does; below 0: none.
  int64_t hanging_call = -1;
  // If not empty: the GPUs, in place of `count` alike. What is allocated counts for all of them.
  std::vector<FakeGpu> gpus = {};
  // Called at each launch that is not recorded, with how many of them there have been.
  std::function<void(int64_t)> on_launch = {};
};

// Replaces the GPU by a new one. REQUIRES: no object of the old one is left.
void SetFakeCuda(const FakeCuda& gpu);

struct FakeCudaUse {
  int64_t calls = 0;        // that may fail
  int64_t allocations = 0;  // of the GPU's memory and pinned
  int64_t refusals = 0;     // of pinned memory, by FakeCuda::pinnable
  int64_t pinned = 0;       // bytes that are allocated now
  int64_t left = 0;         // allocations, streams, events and graphs that are still there
  bool failed = false;      // a call did
};
FakeCudaUse GetFakeCudaUse();

// Another process takes so many bytes more of the GPU's memory; fewer if below 0.
void TakeFakeMemory(int64_t bytes);

// From here on waits for the GPU do not return, and nothing is done that was not done before.
void HangFakeCuda();
// All calls that hang return, those of hanging_call too.
void FreeFakeCuda();

// Makes the next cudaGetLastError of any thread return an error that is not sticky, as after an
// invalid launch or a failed call of the host program.
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

// The launches since the last call, of all threads, without replays of graphs.
std::vector<FakeLaunch> TakeFakeLaunches();

}  // namespace dsv4::test
