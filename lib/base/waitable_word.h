// SPDX-License-Identifier: Apache-2.0
// A number that threads wait for to change. In place of std::atomic::wait: where libstdc++ has no
// futex, that looks at the value before it takes its mutex, and sleeps through a change between.
#pragma once

#include <atomic>
#include <cstdint>

namespace dsv4 {

class WaitableWord {
 public:
  WaitableWord() = default;
  WaitableWord(const WaitableWord&) = delete;
  WaitableWord& operator=(const WaitableWord&) = delete;

  // Whoever waits is woken by WakeAll alone, after the change.
  std::atomic<uint32_t> value{0};

  // Returns once the value is another than `old`: at first it looks a few times, then the thread
  // sleeps.
  void WaitWhile(uint32_t old);
  // Costs a load where nobody sleeps. The changes of `value` before it are sequentially consistent.
  void WakeAll();

 private:
  std::atomic<int32_t> sleepers_{0};
};

}  // namespace dsv4
