// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "examples/dsv4-server/system_limits.h"

namespace server {

// On Linux a thread has a niceness of its own.
void SetNiceness(int niceness) {
  if (niceness != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), niceness);
}

// Without this, malloc raises its own threshold after the first such request and keeps the memory
// of later ones.
void LimitKeptMemory() {
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

}  // namespace server
