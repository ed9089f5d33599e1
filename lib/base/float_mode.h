// SPDX-License-Identifier: Apache-2.0
// The floating-point mode of a thread. A host may have changed it: programs linked with -ffast-math
// flush subnormal numbers to zero, as audio software does, and new threads inherit it. The library
// needs the default one, in which results are what its documents say.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace dsv4 {

// While it lives, the calling thread rounds to nearest, keeps subnormal numbers and traps nothing.
// Then it has the mode that it had before.
class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(Get()) { Set(kDefault); }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;
  ~DefaultFloatMode() { Set(before_); }

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kDefault = 0x1f80;  // MXCSR with all exceptions masked
  static uint32_t Get() { return _mm_getcsr(); }
  static void Set(uint32_t mode) { _mm_setcsr(mode); }
  uint32_t before_;
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;  // FPCR
  static uint64_t Get() {
    uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void Set(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
  uint64_t before_;
#else
#error "the floating-point mode of this processor"
#endif
};

}  // namespace dsv4
