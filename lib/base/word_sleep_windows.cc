// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/base/word_sleep.h"

namespace dsv4 {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void SleepWhile(const std::atomic<uint32_t>* word, uint32_t old) {
  WaitOnAddress(const_cast<std::atomic<uint32_t>*>(word), &old, sizeof old, INFINITE);
}

void WakeSleepers(const std::atomic<uint32_t>* word) {
  WakeByAddressAll(const_cast<std::atomic<uint32_t>*>(word));
}

}  // namespace dsv4
