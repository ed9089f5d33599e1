// SPDX-License-Identifier: Apache-2.0
// The system's calls under WaitableWord, which is what other code takes.
#pragma once

#include <atomic>
#include <cstdint>

namespace dsv4 {

// Sleeps until a WakeSleepers of this word; not at all if its value is not `old`. May return
// without a reason.
void SleepWhile(const std::atomic<uint32_t>* word, uint32_t old);
void WakeSleepers(const std::atomic<uint32_t>* word);

}  // namespace dsv4
