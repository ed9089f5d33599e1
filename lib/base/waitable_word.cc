// SPDX-License-Identifier: Apache-2.0
#include "lib/base/waitable_word.h"

#include <thread>

#include "lib/base/word_sleep.h"

namespace dsv4 {
namespace {

// A change that is about to come takes less time than to sleep and to be woken.
constexpr int kLooks = 4;

}  // namespace

// The sequentially consistent order of (raise sleepers_, read value) here and (change value, read
// sleepers_) there makes one of the two see the other.
void WaitableWord::WaitWhile(uint32_t old) {
  for (int look = 0; look < kLooks; ++look) {
    if (value.load() != old) return;
    std::this_thread::yield();
  }
  sleepers_.fetch_add(1);
  while (value.load() == old) SleepWhile(&value, old);
  sleepers_.fetch_sub(1);
}

void WaitableWord::WakeAll() {
  if (sleepers_.load() > 0) WakeSleepers(&value);
}

}  // namespace dsv4
