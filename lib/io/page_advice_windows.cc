// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/io/page_advice.h"

namespace dsv4 {

void AdviseWillNeed(const uint8_t* data, int64_t bytes) {
  WIN32_MEMORY_RANGE_ENTRY range{const_cast<uint8_t*>(data), static_cast<SIZE_T>(bytes)};
  PrefetchVirtualMemory(GetCurrentProcess(), 1, &range, 0);
}

// Pages that are not locked leave the process's working set by this call.
void AdviseUnneeded(const uint8_t* data, int64_t bytes) {
  VirtualUnlock(const_cast<uint8_t*>(data), static_cast<SIZE_T>(bytes));
}

// The system has no such call.
void DropCached(const std::string&, int64_t, int64_t) {}

// Only what fits a process's least working set can be locked, so that is raised first.
bool LockPages(const uint8_t* data, int64_t bytes) {
  constexpr SIZE_T kBeside = SIZE_T{1} << 20;
  SIZE_T least = 0, most = 0;
  if (!GetProcessWorkingSetSize(GetCurrentProcess(), &least, &most)) return false;
  const SIZE_T more = static_cast<SIZE_T>(bytes) + kBeside;
  return SetProcessWorkingSetSize(GetCurrentProcess(), least + more, most + more) != 0 &&
         VirtualLock(const_cast<uint8_t*>(data), static_cast<SIZE_T>(bytes)) != 0;
}

}  // namespace dsv4
