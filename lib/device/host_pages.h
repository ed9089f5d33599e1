// SPDX-License-Identifier: Apache-2.0
// Pages of host memory from the system, beside the allocator.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsv4 {

// Zeros, aligned to a page; null if the system gives none. Linux counts pages when they are first
// touched; Windows counts them here, against its memory and page file.
std::byte* AllocatePages(int64_t bytes);
void FreePages(std::byte* memory, int64_t bytes);

}  // namespace dsv4
