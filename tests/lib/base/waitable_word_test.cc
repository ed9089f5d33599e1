// SPDX-License-Identifier: Apache-2.0
// A wake-up that is lost ends in the test's time limit.
#include "lib/base/waitable_word.h"

#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

TEST_CASE("a wait for another value than the word has returns at once") {
  WaitableWord word;
  word.value.store(7);
  word.WaitWhile(6);
  word.WakeAll();  // nobody sleeps
  REQUIRE(word.value.load() == 7);
}

// Each waits for the other's number: most waits sleep, and many begin while the change comes.
TEST_CASE("two threads pass a number to and fro") {
  constexpr uint32_t kPasses = 20000;
  WaitableWord ping, pong;
  std::thread other([&] {
    for (uint32_t i = 0; i < kPasses; ++i) {
      ping.WaitWhile(i);
      pong.value.fetch_add(1);
      pong.WakeAll();
    }
  });
  for (uint32_t i = 0; i < kPasses; ++i) {
    ping.value.fetch_add(1);
    ping.WakeAll();
    pong.WaitWhile(i);
  }
  other.join();
  REQUIRE(ping.value.load() == kPasses);
  REQUIRE(pong.value.load() == kPasses);
}

TEST_CASE("one change wakes all that sleep") {
  constexpr int kThreads = 8, kRounds = 50;
  for (int round = 0; round < kRounds; ++round) {
    WaitableWord word;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { word.WaitWhile(0); });
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    word.value.store(1);
    word.WakeAll();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("a wake-up without a change wakes nobody for good") {
  WaitableWord word;
  std::atomic<bool> returned{false};
  std::thread thread([&] {
    word.WaitWhile(0);
    returned = true;
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    word.WakeAll();
  }
  REQUIRE_FALSE(returned);
  word.value.store(1);
  word.WakeAll();
  thread.join();
}

}  // namespace
}  // namespace dsv4
