// SPDX-License-Identifier: Apache-2.0
#include "lib/base/log.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace dsv4 {
namespace {

struct Line {
  LogLevel level;
  std::string text;
};

void Collect(void* user, LogLevel level, const char* message) {
  static_cast<std::vector<Line>*>(user)->push_back({level, message});
}

TEST_CASE("messages up to the level reach the callback, as one line") {
  std::vector<Line> lines;
  SetLogCallback(&Collect, &lines, LogLevel::kWarning);
  Log(LogLevel::kError, "shard ", 3, ": gone");
  Log(LogLevel::kWarning, "two\nlines\r");
  Log(LogLevel::kInfo, "not wanted");
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  Log(LogLevel::kError, "no callback");
  REQUIRE(lines.size() == 2);
  REQUIRE(lines[0].level == LogLevel::kError);
  REQUIRE(lines[0].text == "shard 3: gone");
  REQUIRE(lines[1].level == LogLevel::kWarning);
  REQUIRE(lines[1].text == "two lines ");
}

TEST_CASE("control characters never reach the callback") {
  std::vector<Line> lines;
  SetLogCallback(&Collect, &lines, LogLevel::kWarning);
  Log(LogLevel::kWarning, "a\x1b[2Jb\x7f", "c\xc2\x9b", "31m\xc2\xa0\xe2\x80\x94\t.");
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0].text == "a [2Jb c 31m\xc2\xa0\xe2\x80\x94 .");
}

TEST_CASE("a replaced callback does not run once the replacement returned") {
  struct Listener {
    std::atomic<bool> alive{true};
    std::atomic<int> calls{0}, late{0};
  };
  Listener listener;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) {
        Log(LogLevel::kInfo, "tick");
        std::this_thread::yield();  // the lock prefers readers: leave the writer a gap
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    listener.alive = true;
    const int before = listener.calls;
    SetLogCallback(
        [](void* user, LogLevel, const char*) {
          auto* self = static_cast<Listener*>(user);
          if (!self->alive) ++self->late;
          ++self->calls;
        },
        &listener, LogLevel::kInfo);
    while (listener.calls == before) std::this_thread::yield();
    SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
    listener.alive = false;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  REQUIRE(listener.late == 0);
}

}  // namespace
}  // namespace dsv4
