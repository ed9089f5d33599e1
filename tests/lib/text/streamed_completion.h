// SPDX-License-Identifier: Apache-2.0
// The markup that completions of streaming parser tests are made of, and what holds of every log.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/streaming_parser.h"
#include "tests/lib/text/event_log.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

#define DSML "｜DSML｜"
#define EOS "<｜end▁of▁sentence｜>"
#define CALLS "<" DSML "tool_calls>\n"
#define CALLS_END "</" DSML "tool_calls>"
#define INVOKE(name) "<" DSML "invoke name=\"" name "\">\n"
#define INVOKE_END "</" DSML "invoke>\n"
#define PARAMETER(name, string) "<" DSML "parameter name=\"" name "\" string=\"" string "\">"
#define PARAMETER_END "</" DSML "parameter>\n"

namespace dsv4::test {

inline constexpr auto kChat = ThinkingMode::kChat;
inline constexpr auto kThinking = ThinkingMode::kThinking;

inline std::vector<size_t> EveryByte(size_t size) {
  std::vector<size_t> cuts(size);
  for (size_t i = 0; i < size; ++i) cuts[i] = i;
  return cuts;
}

// What holds of every log, whatever was streamed.
inline void CheckLog(const EventLog& log) {
  using Kind = ParserEvent::Kind;
  int started = 0, ended = 0, broken = 0;
  REQUIRE_FALSE(log.events().empty());
  CHECK(log.whole_characters());
  for (const LoggedEvent& event : log.events()) {
    CHECK((event.kind == Kind::kEnd) == (&event == &log.events().back()));
    switch (event.kind) {
      case Kind::kToolCallStart:
        CHECK(event.call == started++);
        CHECK(event.id == "call_" + std::to_string(event.call));
        break;
      case Kind::kToolCallEnd:
        CHECK(event.call == started - 1);
        ++ended;
        break;
      case Kind::kMalformed:
        CHECK_FALSE(event.reason.empty());
        broken += event.call >= 0;
        break;
      case Kind::kEnd:
        broken += event.call >= 0;
        break;
      default:
        break;
    }
  }
  CHECK(started == ended + broken);
  for (int call = 0; call < started; ++call) {
    const std::string arguments = log.Joined(Kind::kToolCallArguments, call);
    INFO(arguments);
    auto json = ParseJson(arguments, "arguments", 64 << 20);
    REQUIRE_OK(json);
    CHECK(json->AsObject() != nullptr);
  }
}

}  // namespace dsv4::test
