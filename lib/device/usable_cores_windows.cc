// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <algorithm>
#include <bit>

#include "lib/device/device.h"

namespace dsv4 {

// Of the process's group of processors, which has 64 at most.
int UsableCores() {
  DWORD_PTR own = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
  return std::clamp(std::popcount(static_cast<uint64_t>(own)), 1, static_cast<int>(kMaxCpuThreads));
}

}  // namespace dsv4
