// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/device/host_pages.h"

namespace dsv4 {

std::byte* AllocatePages(int64_t bytes) {
  return static_cast<std::byte*>(
      VirtualAlloc(nullptr, static_cast<SIZE_T>(bytes), MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
}

void FreePages(std::byte* memory, int64_t) { VirtualFree(memory, 0, MEM_RELEASE); }

}  // namespace dsv4
