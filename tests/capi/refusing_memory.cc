// SPDX-License-Identifier: Apache-2.0
#include "tests/capi/refusing_memory.h"

#include <cstdlib>
#include <new>

namespace refusing {

std::atomic<long> left = -1;
std::atomic<bool> once = false, unexpected = false, refused = false;
std::atomic<long> live = 0;
thread_local bool exempt = false;

namespace {

// Whether this allocation is refused.
bool Refuses() {
  if (exempt) return false;
  long now = left;
  do {
    if (now < 0) return false;
    if (now == 0) break;
  } while (!left.compare_exchange_weak(now, now - 1));
  if (now > 0) return false;
  if (once && !left.compare_exchange_strong(now, -1)) return false;
  refused = true;
  return true;
}

void* Allocate(std::size_t size, std::size_t alignment) {
  if (Refuses()) {
    if (unexpected) throw 42;
    throw std::bad_alloc();
  }
  void* memory = alignment == 0 ? std::malloc(size == 0 ? 1 : size)
                                : std::aligned_alloc(
                                      alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  ++live;
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr) --live;
  std::free(memory);
}

}  // namespace
}  // namespace refusing

void* operator new(std::size_t size) { return refusing::Allocate(size, 0); }
void* operator new[](std::size_t size) { return refusing::Allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return refusing::Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* memory = refusing::Refuses() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory != nullptr) ++refusing::live;
  return memory;
}
void operator delete(void* memory) noexcept { refusing::Free(memory); }
void operator delete[](void* memory) noexcept { refusing::Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { refusing::Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { refusing::Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { refusing::Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  refusing::Free(memory);
}
