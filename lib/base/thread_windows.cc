// SPDX-License-Identifier: Apache-2.0
#include <process.h>
#include <windows.h>

#include <algorithm>
#include <memory>
#include <new>

#include "lib/base/float_mode.h"
#include "lib/base/thread.h"

namespace dsv4 {
namespace {

// As Linux has it. A program's own setting would hold otherwise: often 1 MB.
constexpr unsigned kStackBytes = 8u << 20;

struct Call {
  void (*main)(void*);
  void* argument;
};

unsigned __stdcall Main(void* memory) {
  const DefaultFloatMode floats;
  const std::unique_ptr<const Call> own(static_cast<const Call*>(memory));
  own->main(own->argument);
  return 0;
}

HANDLE HandleOf(uintptr_t handle) { return reinterpret_cast<HANDLE>(handle); }

}  // namespace

int Thread::Start(void (*main)(void* argument), void* argument) {
  std::unique_ptr<Call> call(new (std::nothrow) Call{main, argument});
  if (call == nullptr) return ERROR_NOT_ENOUGH_MEMORY;
  handle_ = _beginthreadex(nullptr, kStackBytes, Main, call.get(),
                           STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
  if (handle_ == 0) {
    const DWORD error = GetLastError();
    return error == 0 ? ERROR_NOT_ENOUGH_MEMORY : static_cast<int>(error);
  }
  static_cast<void>(call.release());
  return 0;
}

void Thread::Join() {
  WaitForSingleObject(HandleOf(handle_), INFINITE);
  CloseHandle(HandleOf(handle_));
}

bool Thread::JoinWithin(std::chrono::milliseconds limit) {
  const auto time = static_cast<DWORD>(std::clamp<int64_t>(limit.count(), 0, INFINITE - 1));
  const bool ended = WaitForSingleObject(HandleOf(handle_), time) == WAIT_OBJECT_0;
  CloseHandle(HandleOf(handle_));
  return ended;
}

void Thread::Detach() { CloseHandle(HandleOf(handle_)); }

void Thread::LowerPriority() {
  SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
}

}  // namespace dsv4
