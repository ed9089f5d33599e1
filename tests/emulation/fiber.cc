// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/fiber.h"

#if defined(__x86_64__)

// void SwitchStacks(void** from, void* to): what the System V ABI has a function keep goes to the
// stack, whose top goes to *from; the same comes from the stack `to`. glibc's swapcontext asks the
// kernel to save signal masks, twenty times the cost.
asm(R"(
  .text
  .type dsv4_emulation_switch_stacks, @function
dsv4_emulation_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size dsv4_emulation_switch_stacks, . - dsv4_emulation_switch_stacks
)");
extern "C" void dsv4_emulation_switch_stacks(void** from, void* to);

namespace dsv4::emulation {

void Fiber::Begin(std::byte* stack, size_t bytes, void (*entry)()) {
  auto** top = reinterpret_cast<void**>(stack + bytes / 16 * 16);
  *--top = nullptr;                              // where a caller's address would be
  *--top = reinterpret_cast<void*>(entry);       // what the switch returns to
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the registers
  stack_pointer_ = top;
}

void Fiber::Switch(Fiber& from, Fiber& to) {
  dsv4_emulation_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
}

}  // namespace dsv4::emulation

#else

namespace dsv4::emulation {

void Fiber::Begin(std::byte* stack, size_t bytes, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Fiber::Switch(Fiber& from, Fiber& to) { swapcontext(&from.context_, &to.context_); }

}  // namespace dsv4::emulation

#endif
