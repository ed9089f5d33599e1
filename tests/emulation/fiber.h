// SPDX-License-Identifier: Apache-2.0
// Stacks of a thread of the host that take turns.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace dsv4::emulation {

class Fiber {
 public:
  // Runs `entry` on `stack` when it is first switched to; it must not return.
  void Begin(std::byte* stack, size_t bytes, void (*entry)());
  // From the running fiber, `from`, to another, until somebody switches back.
  static void Switch(Fiber& from, Fiber& to);

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace dsv4::emulation
