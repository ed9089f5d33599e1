// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "examples/dsv4-server/system_limits.h"

namespace server {

void SetNiceness(int niceness) {
  if (niceness == 0) return;
  SetThreadPriority(GetCurrentThread(),
                    niceness > 10 ? THREAD_PRIORITY_LOWEST : THREAD_PRIORITY_BELOW_NORMAL);
}

// The heap gives blocks of more than half a MiB back by itself.
void LimitKeptMemory() {}

}  // namespace server
