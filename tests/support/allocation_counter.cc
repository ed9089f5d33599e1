// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/support/catch.h"

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<bool> counting{false};

// Not inlined: the compiler would pair malloc and free with new and delete of its own.
[[gnu::noinline]] void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) std::abort();
  return memory;
}

[[gnu::noinline]] void Free(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, 16); }
void* operator new[](std::size_t bytes) { return Allocate(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }

namespace dsv4::test {

int64_t CountAllocations(absl::FunctionRef<void()> f) {
  allocations = 0;
  counting = true;
  f();
  counting = false;
  return allocations;
}

// In every test that counts: a replacement that was not linked would count nothing, ever.
TEST_CASE("the counter counts") {
  // No new-expression: the compiler may leave out a pair of those.
  REQUIRE(CountAllocations([] { ::operator delete(::operator new(1)); }) == 1);
}

}  // namespace dsv4::test
