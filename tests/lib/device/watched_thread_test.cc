// SPDX-License-Identifier: Apache-2.0
#include "lib/device/watched_thread.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::unique_ptr<WatchedThread> Start(milliseconds limit) {
  absl::StatusOr<std::unique_ptr<WatchedThread>> thread = WatchedThread::Start(limit);
  REQUIRE_OK(thread);
  return *std::move(thread);
}

TEST_CASE("work runs on the watched thread, each time on the same one") {
  const auto thread = Start(milliseconds(60'000));
  std::thread::id ids[2];
  for (std::thread::id& id : ids) REQUIRE(thread->Run([&] { id = std::this_thread::get_id(); }));
  CHECK(ids[0] == ids[1]);
  CHECK(ids[0] == thread->id());
  CHECK(ids[0] != std::this_thread::get_id());
}

TEST_CASE(
    "a thread that works longer than the limit, outside a driver or in many calls, is waited for") {
  const auto thread = Start(milliseconds(300));
  bool done = false;
  REQUIRE(thread->Run([&] {
    std::this_thread::sleep_for(milliseconds(700));
    const auto until = Clock::now() + milliseconds(700);
    while (Clock::now() < until) {
      const DriverCall one;
      const DriverCall nested;
      std::this_thread::sleep_for(milliseconds(1));
    }
    done = true;
  }));
  CHECK(done);
  CHECK_FALSE(thread->left());
}

TEST_CASE("a thread in a call that does not return is left behind, and does nothing after it") {
  for (const bool nested : {false, true}) {
    // Not a part of this frame: the thread stays.
    static std::atomic<bool> returns, called, continued;
    returns = called = continued = false;
    auto thread = Start(milliseconds(50));
    const auto begin = Clock::now();
    REQUIRE_FALSE(thread->Run([&] {
      const auto call = [] {
        const DriverCall in_driver;
        called = true;
        while (!returns) std::this_thread::sleep_for(milliseconds(1));
      };
      if (nested) {
        const DriverCall outer;
        call();
        continued = true;
      } else {
        call();
        continued = true;
      }
    }));
    const auto waited = Clock::now() - begin;
    CHECK(called);
    CHECK(thread->left());
    CHECK(waited >= milliseconds(50));
    CHECK(waited < milliseconds(5000));
    CHECK_FALSE(thread->Run([&] { continued = true; }));
    returns = true;
    thread.reset();
    std::this_thread::sleep_for(milliseconds(100));
    CHECK_FALSE(continued);
  }
}

TEST_CASE("after work that took long, a call that does not return is left behind as soon") {
  static std::atomic<bool> returns;  // the thread stays
  returns = false;
  const auto thread = Start(milliseconds(50));
  REQUIRE(thread->Run([] { std::this_thread::sleep_for(milliseconds(1500)); }));
  const auto begin = Clock::now();
  REQUIRE_FALSE(thread->Run([] {
    const DriverCall in_driver;
    while (!returns) std::this_thread::sleep_for(milliseconds(1));
  }));
  CHECK(Clock::now() - begin < milliseconds(1000));
  returns = true;
}

TEST_CASE("calls of a driver on a thread that nobody watches have no effect") {
  CHECK(InDriver([] { return 3; }) == 3);
}

}  // namespace
}  // namespace dsv4::test
