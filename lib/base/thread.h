// SPDX-License-Identifier: Apache-2.0
// A thread of the system. Unlike std::thread it throws nothing where the system gives no thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsv4 {

// Has no destructor: every started thread is joined or detached.
class Thread {
 public:
  // Runs main(argument) on a new thread. Returns 0, or the system's error number (SystemReason).
  // `main` throws nothing.
  [[nodiscard]] int Start(void (*main)(void* argument), void* argument);
  void Join();
  // As Join, but false if the thread has not ended within `limit`; it is detached then.
  [[nodiscard]] bool JoinWithin(std::chrono::milliseconds limit);
  void Detach();

  // Lets other threads of the machine go before the calling one, as far as the system allows.
  static void LowerPriority();

 private:
  uintptr_t handle_ = 0;
};

}  // namespace dsv4
