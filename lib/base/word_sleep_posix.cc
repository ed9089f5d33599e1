// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <limits>

#include "lib/base/word_sleep.h"

namespace dsv4 {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void SleepWhile(const std::atomic<uint32_t>* word, uint32_t old) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}

void WakeSleepers(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr,
          0);
}

}  // namespace dsv4
