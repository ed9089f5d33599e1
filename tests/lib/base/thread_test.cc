// SPDX-License-Identifier: Apache-2.0
#include "lib/base/thread.h"

#include <atomic>
#include <string>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/loaded_library.h"
#include "tests/support/catch.h"

namespace dsv4 {
namespace {

using std::chrono::milliseconds;

TEST_CASE("a thread runs its function with its argument, and is joined") {
  int value = 0;
  Thread thread;
  REQUIRE(thread.Start([](void* number) { *static_cast<int*>(number) = 5; }, &value) == 0);
  thread.Join();
  REQUIRE(value == 5);
}

TEST_CASE("a thread that takes longer than the limit is left behind") {
  struct State {
    std::atomic<bool> go{false}, done{false};
  };
  State state;
  const auto wait = [](void* memory) {
    auto* const own = static_cast<State*>(memory);
    Thread::LowerPriority();
    while (!own->go) std::this_thread::sleep_for(milliseconds(1));
    own->done = true;
  };
  Thread slow;
  REQUIRE(slow.Start(wait, &state) == 0);
  REQUIRE_FALSE(slow.JoinWithin(milliseconds(30)));
  state.go = true;
  while (!state.done) std::this_thread::sleep_for(milliseconds(1));
  Thread quick;
  REQUIRE(quick.Start(wait, &state) == 0);
  REQUIRE(quick.JoinWithin(std::chrono::minutes(1)));
}

// Whatever the program asks of the linker: work of the library recurses, if not far.
TEST_CASE("a thread has a stack of some megabytes") {
  Thread thread;
  std::atomic<int> sum{0};
  REQUIRE(thread.Start(
              [](void* to) {
                volatile char stack[6 << 20];
                for (size_t i = 0; i < sizeof stack; i += 4096) stack[i] = 1;
                *static_cast<std::atomic<int>*>(to) = stack[4096];
              },
              &sum) == 0);
  thread.Join();
  REQUIRE(sum == 1);
}

TEST_CASE("a library that is not there, with the system's reason") {
  std::string reason;
  REQUIRE(LoadLibraryNamed("libdsv4-no-such-thing.so.1", &reason) == nullptr);
  REQUIRE(reason.find("libdsv4-no-such-thing.so.1") != std::string::npos);
  REQUIRE(LoadLibraryNamed("libdsv4-no-such-thing.so.1") == nullptr);
}

TEST_CASE("the system's words for an error have one line") {
  const std::string reason = SystemReason(2);  // no such file: on Linux and Windows alike
  REQUIRE_FALSE(reason.empty());
  REQUIRE(reason.find_first_of("\r\n") == std::string::npos);
  REQUIRE(reason != SystemReason(5));
}

}  // namespace
}  // namespace dsv4
