// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include "lib/device/host_pages.h"

namespace dsv4 {

std::byte* AllocatePages(int64_t bytes) {
  void* const data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

void FreePages(std::byte* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

}  // namespace dsv4
