// SPDX-License-Identifier: Apache-2.0
// Counts what a step allocates: nothing, once the session has warmed up.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/support/bundled_model.h"

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

namespace dsv4 {
namespace {

// Runs `f` and returns how often it allocated, on any thread.
template <class F>
int64_t CountAllocations(F&& f) {
  allocations = 0;
  counting = true;
  f();
  counting = false;
  return allocations;
}

TEST_CASE("the counter counts") {
  REQUIRE(CountAllocations([] { delete new int(1); }) >= 1);
}

TEST_CASE("a step after warm-up allocates nothing: prefill, greedy and sampled decode") {
  for (const Backend backend : {Backend::kCpu, Backend::kReference}) {
    CAPTURE(BackendName(backend));
    const std::shared_ptr<Engine> engine = test::OpenBundled(
        {.backend = backend, .context_tokens = 2048, .prefill_chunk_tokens = 64, .threads = 2});
    for (const float temperature : {0.0f, 1.0f}) {
      CAPTURE(temperature);
      const std::unique_ptr<Session> session =
          test::OpenSession(engine, {.temperature = temperature, .top_k = 100, .top_p = 0.9f});
      const std::vector<int32_t> prompt = test::AnyTokens(900, 1);
      REQUIRE_OK(session->Sync(prompt));
      REQUIRE_OK(session->Prefill(64, nullptr));
      REQUIRE(CountAllocations([&] { (void)session->Prefill(0, nullptr); }) == 0);
      REQUIRE_OK(session->Step());
      bool ok = true;
      REQUIRE(CountAllocations([&] {
                for (int i = 0; i < 200; ++i) ok = ok && session->Step().ok();
              }) == 0);
      REQUIRE(ok);
    }
  }
}

}  // namespace
}  // namespace dsv4
