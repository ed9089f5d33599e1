// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>

#include "lib/device/device.h"

namespace dsv4 {

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, static_cast<int>(kMaxCpuThreads));
}

}  // namespace dsv4
