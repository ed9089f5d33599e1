// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_parser.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lib/text/event_log.h"
#include "tests/lib/text/parse_cases.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

using namespace dsv4;
using dsv4::test::EventLog;
using dsv4::test::LoggedEvent;
using dsv4::test::ParseCase;
using dsv4::test::Streamed;
using Kind = ParserEvent::Kind;

namespace {

#define DSML "｜DSML｜"
#define EOS "<｜end▁of▁sentence｜>"
#define CALLS "<" DSML "tool_calls>\n"
#define CALLS_END "</" DSML "tool_calls>"
#define INVOKE(name) "<" DSML "invoke name=\"" name "\">\n"
#define INVOKE_END "</" DSML "invoke>\n"
#define PARAMETER(name, string) "<" DSML "parameter name=\"" name "\" string=\"" string "\">"
#define PARAMETER_END "</" DSML "parameter>\n"

constexpr auto kChat = ThinkingMode::kChat;
constexpr auto kThinking = ThinkingMode::kThinking;

std::vector<std::vector<size_t>> RandomCuts(size_t size, int count, std::mt19937& random) {
  std::vector<std::vector<size_t>> all;
  for (int i = 0; i < count; ++i) {
    std::vector<size_t> cuts;
    const size_t pieces = 2 + random() % 24;
    for (size_t k = 0; k < pieces; ++k) cuts.push_back(random() % (size + 1));
    std::sort(cuts.begin(), cuts.end());
    all.push_back(std::move(cuts));
  }
  return all;
}

std::vector<size_t> EveryByte(size_t size) {
  std::vector<size_t> cuts(size);
  for (size_t i = 0; i < size; ++i) cuts[i] = i;
  return cuts;
}

// What holds of every log, whatever was streamed.
void CheckLog(const EventLog& log) {
  int started = 0, ended = 0, broken = 0;
  std::string open_arguments;
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

void CheckSplits(const std::string& text, ThinkingMode mode, std::mt19937& random) {
  const EventLog whole = Streamed(text, mode);
  CheckLog(whole);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (!(Streamed(text, mode, {cut}).events() == whole.events())) {
      INFO("cut at " << cut << " of " << text);
      CHECK(Streamed(text, mode, {cut}).events() == whole.events());
      return;
    }
  }
  INFO(text);
  for (const auto& cuts : RandomCuts(text.size(), 20, random)) {
    CHECK(Streamed(text, mode, cuts).events() == whole.events());
  }
  CHECK(Streamed(text, mode, EveryByte(text.size())).events() == whole.events());
}

double Seconds(const std::string& text, size_t piece) {
  const auto start = std::chrono::steady_clock::now();
  StreamingParser parser({.mode = kThinking});
  size_t delivered = 0;
  const auto count = [&](const ParserEvent& event) { delivered += event.text.size(); };
  for (size_t i = 0; i < text.size(); i += piece) {
    parser.Feed(absl::string_view(text).substr(i, piece), count);
  }
  parser.Finish(count);
  CHECK(delivered > 0);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string Repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

}  // namespace

TEST_CASE("streamed completions give the published messages") {
  int repaired = 0;
  for (const ParseCase& one : test::ReadParseCases()) {
    INFO(one.text);
    const EventLog log = Streamed(one.text, one.mode);
    CheckLog(log);
    if (one.refused) {
      // Nothing that the published parser refuses passes without a word.
      const LoggedEvent& end = log.events().back();
      const bool reasoning_open = one.mode == kThinking && log.Count(Kind::kText) == 0;
      CHECK((log.Count(Kind::kMalformed) > 0 || end.unfinished || !end.stopped || reasoning_open));
      continue;
    }
    CHECK(log.Joined(Kind::kReasoning) == one.message.reasoning_content);
    CHECK(log.Joined(Kind::kText) == one.message.content);
    CHECK(log.Count(Kind::kMalformed) == 0);
    const int calls = static_cast<int>(one.message.tool_calls.size());
    REQUIRE(log.Count(Kind::kToolCallStart) == calls);
    REQUIRE(log.Count(Kind::kToolCallEnd) == calls);
    for (const LoggedEvent& event : log.events()) {
      if (event.kind == Kind::kToolCallStart) {
        CHECK(event.text == one.message.tool_calls[event.call].name);
      }
      if (event.kind != Kind::kToolCallEnd) continue;
      const std::string& expected = one.message.tool_calls[event.call].arguments;
      const std::string arguments = log.Joined(Kind::kToolCallArguments, event.call);
      if (event.repaired) {
        ++repaired;
        CHECK_FALSE(ParseJson(expected, "", 1 << 20).ok());
        CHECK(arguments != expected);
      } else {
        CHECK(arguments == expected);
      }
    }
  }
  CHECK(repaired == 1);
}

TEST_CASE("recorded completions give the same events in any pieces, in either mode") {
  std::mt19937 random(20260101);
  for (const ParseCase& one : test::ReadParseCases()) {
    for (const ThinkingMode mode : {kChat, kThinking}) CheckSplits(one.text, mode, random);
  }
}

TEST_CASE("reasoning ends at its marker, and for good at the start of tool calls") {
  EventLog log = Streamed("plan</think>text", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK(log.Joined(Kind::kText) == "text");
  CHECK(log.Count(Kind::kMalformed) == 0);

  log = Streamed("plan\n\n" CALLS INVOKE("f") INVOKE_END CALLS_END EOS, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK(log.Joined(Kind::kText) == "");
  CHECK(log.Count(Kind::kToolCallEnd) == 1);
  CHECK(log.Count(Kind::kMalformed) == 0);

  // Without the line breaks too; what comes after and is no tool call is content, not reasoning.
  log = Streamed("plan <" DSML "tool_calls> or not", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan ");
  CHECK(log.Joined(Kind::kText) == "<" DSML "tool_calls> or not");
  REQUIRE(log.Count(Kind::kMalformed) == 1);
  CHECK(log.events()[1].reason == "neither a tool call nor the end of the tool calls");

  log = Streamed("plan", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK_FALSE(log.events().back().stopped);
}

TEST_CASE("what only looks like a marker is delivered") {
  for (const char* text : {"a < b << c <<< d", "</thin", "</think", "<｜DSML", "\n\n", "\n\n<",
                           "a\n\n\nb", "<｜end▁of▁sentence｜", "<think", "｜DSML", "\n\n<｜DSML",
                           "<｜｜>", "｜end▁of▁sentence｜>"}) {
    INFO(text);
    const EventLog log = Streamed(text, kChat, EveryByte(std::string(text).size()));
    CHECK(log.Joined(Kind::kText) == text);
    CHECK(log.events().size() == 2);
    CHECK_FALSE(log.events().back().unfinished);
  }
  const EventLog log = Streamed("a</thin</think>b", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "a</thin");
  CHECK(log.Joined(Kind::kText) == "b");
}

TEST_CASE("control markers without a place are events, not text") {
  const EventLog log = Streamed("a<think>b</think>c<｜begin▁of▁sentence｜>d" EOS EOS "e", kChat);
  CHECK(log.Joined(Kind::kText) == "abcde");
  std::vector<std::string> markers;
  for (const LoggedEvent& event : log.events()) {
    if (event.kind == Kind::kMalformed) markers.push_back(event.text);
  }
  CHECK(markers ==
        std::vector<std::string>{"<think>", "</think>", "<｜begin▁of▁sentence｜>", EOS, ""});
  CHECK(log.events()[log.events().size() - 3].reason == "text after the end");
  CHECK(log.events().back().stopped);
  CHECK(Streamed(EOS "\n\n<" DSML "tool_calls", kChat).Joined(Kind::kText) == "\n\n<" DSML
                                                                              "tool_calls");
}

TEST_CASE("several calls, with text values in pieces and other values whole") {
  const std::string text = "Look:\n\n" CALLS INVOKE("weather")
      PARAMETER("city", "true") "Par\"is\n🚀" PARAMETER_END PARAMETER(
          "days", "false") "[1, 2]" PARAMETER_END INVOKE_END INVOKE("now") INVOKE_END CALLS_END EOS;
  StreamingParser parser({.mode = kChat, .id_prefix = "turn7_"});
  std::vector<std::string> pieces;
  std::vector<std::string> ids;
  const auto add = [&](const ParserEvent& event) {
    if (event.kind == Kind::kToolCallArguments && event.call == 0) {
      pieces.emplace_back(event.text);
    }
    if (event.kind == Kind::kToolCallStart) ids.emplace_back(event.id);
  };
  for (const char byte : text) parser.Feed({&byte, 1}, add);
  parser.Finish(add);
  CHECK(pieces == std::vector<std::string>{"{\"city\": \"", "P", "a", "r", "\\\"", "i", "s", "\\n",
                                           "🚀", "\"", ", \"days\": [1, 2]", "}"});
  CHECK(ids == std::vector<std::string>{"turn7_0", "turn7_1"});
  const EventLog log = Streamed(text, kChat);
  CHECK(log.Joined(Kind::kText) == "Look:");
  CHECK(log.Joined(Kind::kToolCallArguments, 1) == "{}");
  // As new after Finish.
  EventLog again;
  parser.Feed("x", [&](const ParserEvent& event) { again.Add(event); });
  parser.Finish([&](const ParserEvent& event) { again.Add(event); });
  CHECK(again.Joined(Kind::kText) == "x");
}

TEST_CASE("a value that is announced as JSON and is none becomes a string") {
  const auto arguments = [](const std::string& value) {
    const EventLog log = Streamed(
        "\n\n" CALLS INVOKE("f") PARAMETER("a", "false") "1" PARAMETER_END PARAMETER("b", "false") +
            value + PARAMETER_END INVOKE_END CALLS_END EOS,
        kChat);
    CheckLog(log);
    bool repaired = false;
    for (const LoggedEvent& event : log.events()) {
      if (event.kind == Kind::kToolCallArguments) repaired |= event.repaired;
      if (event.kind == Kind::kToolCallEnd) CHECK(event.repaired == repaired);
    }
    return absl::StrCat(repaired ? "repaired " : "", log.Joined(Kind::kToolCallArguments, 0));
  };
  CHECK(arguments(" {\"x\": [1, null]}\n") == R"({"a": 1, "b":  {"x": [1, null]}
})");
  CHECK(arguments("12345678901234567890.5e400") == R"({"a": 1, "b": 12345678901234567890.5e400})");
  CHECK(arguments("NaN") == R"(repaired {"a": 1, "b": "NaN"})");
  CHECK(arguments("") == R"(repaired {"a": 1, "b": ""})");
  CHECK(arguments("say \"hi\"") == R"(repaired {"a": 1, "b": "say \"hi\""})");
  CHECK(arguments("1, \"c\": 2") == R"(repaired {"a": 1, "b": "1, \"c\": 2"})");
}

TEST_CASE("only the value that is no JSON is flagged") {
  const EventLog log =
      Streamed("\n\n" CALLS INVOKE("f") PARAMETER("a", "false") "x" PARAMETER_END PARAMETER(
                   "b", "true") "y" PARAMETER_END INVOKE_END INVOKE("g")
                   PARAMETER("c", "false") "2" PARAMETER_END INVOKE_END CALLS_END EOS,
               kChat);
  std::vector<std::string> repaired, ended;
  for (const LoggedEvent& event : log.events()) {
    if (event.kind == Kind::kToolCallArguments && event.repaired) repaired.push_back(event.text);
    if (event.kind == Kind::kToolCallEnd) ended.push_back(event.repaired ? "repaired" : "whole");
  }
  CHECK(repaired == std::vector<std::string>{R"({"a": "x")"});
  CHECK(ended == std::vector<std::string>{"repaired", "whole"});
  CHECK(log.Joined(Kind::kToolCallArguments, 0) == R"({"a": "x", "b": "y"})");
}

TEST_CASE("a value beyond the cap is sent as a string while it arrives") {
  const std::string start = "\n\n" CALLS INVOKE("f") PARAMETER("a", "false");
  const std::string end = PARAMETER_END INVOKE_END CALLS_END EOS;
  for (const size_t over : {0, 1, 100000}) {
    std::string value(StreamingParser::kMaxValueBytes + over, 'x');
    value.front() = value.back() = '"';
    const std::string text = start + value + end;
    const EventLog whole = Streamed(text, kChat);
    CheckLog(whole);
    CHECK(whole.events()[whole.events().size() - 2].repaired == (over > 0));
    const std::string expected =
        over == 0 ? value : absl::StrCat("\"\\", value.substr(0, value.size() - 1), "\\\"\"");
    CHECK((whole.Joined(Kind::kToolCallArguments, 0) == absl::StrCat("{\"a\": ", expected, "}")));
    for (const size_t cut :
         {start.size() + 10, start.size() + StreamingParser::kMaxValueBytes,
          start.size() + StreamingParser::kMaxValueBytes + 1, start.size() + value.size() + 5}) {
      CHECK((Streamed(text, kChat, {cut}).events() == whole.events()));
    }
  }
}

TEST_CASE("malformed tool markup ends as content, with an event") {
  struct Case {
    const char* text;
    const char* content;
    const char* arguments;  // of call 0; null when none starts
    bool finished;
  };
  const Case cases[] = {
      {"\n\n" CALLS "call f!", "\n\n" CALLS "call f!", nullptr, false},
      {"\n\n" CALLS "<" DSML "invoke f>", "\n\n" CALLS "<" DSML "invoke f>", nullptr, false},
      {"\n\n" CALLS "<" DSML "invoke name=\"f\">" PARAMETER("a", "true") "b",
       "\n\n" CALLS "<" DSML "invoke name=\"f\">" PARAMETER("a", "true") "b", nullptr, false},
      {CALLS INVOKE("f") PARAMETER("a", "maybe") "b" PARAMETER_END,
       PARAMETER("a", "maybe") "b" PARAMETER_END, "{}", false},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END "!", "\n!", R"({"a": "b"})",
       false},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b/" DSML "parameter>", "/" DSML "parameter>",
       R"({"a": "b"})", false},
      {CALLS INVOKE("f") PARAMETER("a", "false") "1/" DSML "parameter>",
       PARAMETER("a", "false") "1/" DSML "parameter>", "{}", false},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END PARAMETER("a", "true") "c",
       PARAMETER("a", "true") "c", R"({"a": "b"})", false},
      {CALLS INVOKE("f") INVOKE_END "and then", "\nand then", "{}", true},
      {CALLS INVOKE("f") INVOKE_END "<" DSML "invoke>", "<" DSML "invoke>", "{}", true},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    const EventLog log = Streamed(one.text, kChat);
    CheckLog(log);
    CHECK(log.Joined(Kind::kText) == one.content);
    CHECK(log.Count(Kind::kMalformed) == 1);
    CHECK(log.Count(Kind::kToolCallStart) == (one.arguments != nullptr));
    CHECK(log.Count(Kind::kToolCallEnd) == one.finished);
    if (one.arguments != nullptr) {
      CHECK(log.Joined(Kind::kToolCallArguments, 0) == one.arguments);
    }
    CHECK_FALSE(log.events().back().unfinished);
  }
}

TEST_CASE("tool markup outside of tool calls, and content after them, are reported") {
  EventLog log = Streamed("a " INVOKE("f") INVOKE_END "b", kChat);
  CHECK(log.Joined(Kind::kText) == "a " INVOKE("f") INVOKE_END "b");
  CHECK(log.Count(Kind::kMalformed) == 1);

  log = Streamed("\n\n" CALLS INVOKE("f") INVOKE_END CALLS_END "so" EOS, kChat);
  CHECK(log.Joined(Kind::kText) == "so");
  CHECK(log.Count(Kind::kMalformed) == 1);

  // Once for each stretch without a call.
  log = Streamed("</" DSML "a></" DSML "b>\n\n" CALLS INVOKE("f") INVOKE_END CALLS_END DSML, kChat);
  CHECK(log.Joined(Kind::kText) == "</" DSML "a></" DSML "b>" DSML);
  std::vector<std::string> reasons;
  for (const LoggedEvent& event : log.events()) {
    if (event.kind == Kind::kMalformed) reasons.push_back(event.reason);
  }
  CHECK(reasons == std::vector<std::string>{"tool markup outside of tool calls",
                                            "tool markup outside of tool calls",
                                            "text after the tool calls"});

  // A call after broken ones is a call.
  log = Streamed("\n\n" CALLS "?\n\n" CALLS INVOKE("f") INVOKE_END CALLS_END EOS, kChat);
  CHECK(log.Joined(Kind::kText) == "\n\n" CALLS "?");
  CHECK(log.Count(Kind::kToolCallEnd) == 1);
}

TEST_CASE("calls that the end cuts off are reported") {
  struct Case {
    const char* text;
    const char* arguments;  // null: no call has started
    const char* rest;
  };
  const Case cases[] = {
      {"\n\n<" DSML "tool_calls", nullptr, "\n\n<" DSML "tool_calls"},
      {"\n\n" CALLS "<" DSML "inv", nullptr, "\n\n" CALLS "<" DSML "inv"},
      {CALLS "<" DSML "invoke name=\"f", nullptr, CALLS "<" DSML "invoke name=\"f"},
      {CALLS INVOKE("f"), "{}", ""},
      {CALLS INVOKE("f") "<" DSML "parameter name=\"a\" str", "{}",
       "<" DSML "parameter name=\"a\" str"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b</" DSML "para", R"({"a": "b</｜DSML｜para"})",
       ""},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b" EOS, R"({"a": "b"})", ""},
      {CALLS INVOKE("f") PARAMETER("a", "false") "12", "{}", PARAMETER("a", "false") "12"},
      {CALLS INVOKE("f") PARAMETER("a", "false") "12" EOS, "{}", PARAMETER("a", "false") "12"},
      {CALLS INVOKE("f") PARAMETER("a", "false") "12</" DSML "parameter>\n", R"({"a": 12})", "\n"},
      {CALLS INVOKE("f") PARAMETER("a", "false") "12</" DSML "parameter>", R"({"a": 12})", ""},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b</" DSML "parameter>", R"({"a": "b"})", ""},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b</" DSML "parameter", R"({"a": "b"})", ""},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END "<" DSML "par", R"({"a": "b"})",
       "\n<" DSML "par"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END "<" DSML "parameter name",
       R"({"a": "b"})", "<" DSML "parameter name"},
  };
  for (const Case& one : cases) {
    const std::string text = one.text;
    INFO(text);
    const EventLog log = Streamed(text, kChat, EveryByte(text.size()));
    CheckLog(log);
    CHECK(log.Joined(Kind::kText) == "");
    CHECK(log.Count(Kind::kToolCallEnd) == 0);
    const LoggedEvent& end = log.events().back();
    CHECK(end.unfinished);
    CHECK(end.text == one.rest);
    CHECK(end.call == (one.arguments == nullptr ? -1 : 0));
    CHECK(end.stopped == (text.find(EOS) != std::string::npos));
    if (one.arguments != nullptr) {
      CHECK(log.Joined(Kind::kToolCallArguments, 0) == one.arguments);
    }
  }
  // After a whole call.
  for (const auto& [text, rest] : std::vector<std::pair<std::string, std::string>>{
           {"\n\n" CALLS INVOKE("f") INVOKE_END, "\n"},
           {"\n\n" CALLS INVOKE("f") "</" DSML "invoke>", ""},
           {"\n\n" CALLS INVOKE("f") "</" DSML "invoke", ""},
           {"\n\n" CALLS INVOKE("f") INVOKE_END "</" DSML "tool_c", "\n</" DSML "tool_c"},
           {"\n\n" CALLS INVOKE("f") INVOKE_END "<" DSML "invoke n", "<" DSML "invoke n"},
       }) {
    INFO(text);
    const EventLog log = Streamed(text, kChat, EveryByte(text.size()));
    CHECK(log.Count(Kind::kToolCallEnd) == 1);
    CHECK(log.events().back().unfinished);
    CHECK(log.events().back().call == -1);
    CHECK(log.events().back().text == rest);
    CHECK(log.events() == Streamed(text, kChat).events());
  }
  // The bracket of the start of the calls is cut off with them.
  CHECK(Streamed("\n\n<" DSML "tool_calls>", kChat).events().back().text == "\n\n<" DSML
                                                                            "tool_calls>");
}

TEST_CASE("bytes that are not UTF-8 become replacement characters") {
  std::mt19937 random(7);
  const std::string text = "a\xE5\xA4\xA9\xE5\xA4x\xFF</think>\xF0\x9F\x9A\x80\xF0\x9F";
  const EventLog log = Streamed(text, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "a天\uFFFDx\uFFFD");
  CHECK(log.Joined(Kind::kText) == "🚀\uFFFD");
  CheckSplits(text, kThinking, random);
}

TEST_CASE("names beyond the cap are malformed, in any pieces") {
  const std::string name(StreamingParser::kMaxNameBytes + 1000, 'n');
  const std::string accents = Repeated("é", StreamingParser::kMaxNameBytes + 1000);
  const std::string spaces(StreamingParser::kMaxNameBytes + 1000, ' ');
  for (const std::string& text : {
           CALLS "<" DSML "invoke name=\"" + name + "\">\n" INVOKE_END CALLS_END EOS,
           CALLS "<" DSML "invoke name=\"x" + accents + "\">\n" INVOKE_END CALLS_END EOS,
           CALLS "<" DSML "invoke" + spaces + "name=\"f\">\n" INVOKE_END CALLS_END EOS,
           CALLS INVOKE("f") "<" DSML "parameter name=\"x" + accents + "\" string=\"true\">" EOS,
       }) {
    const EventLog whole = Streamed(text, kChat);
    CheckLog(whole);
    CHECK(whole.Count(Kind::kMalformed) == 1);
    CHECK(whole.Count(Kind::kToolCallEnd) == 0);
    const EventLog in_bytes = Streamed(text, kChat, EveryByte(text.size()));
    CHECK(in_bytes.whole_characters());
    CHECK((in_bytes.events() == whole.events()));
  }
}

TEST_CASE("no more is held back than the markers need") {
  std::mt19937 random(11);
  const std::string pieces[] = {"<",          "\n", "</thi", "<｜DSML｜tool_",         "｜",
                                "<｜end▁of▁", "x",  "天气",  "\n\n<｜DSML｜tool_call", "</think>"};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    while (text.size() < 300) text += pieces[random() % std::size(pieces)];
    StreamingParser parser({.mode = kThinking});
    size_t fed = 0, delivered = 0;
    const auto count = [&](const ParserEvent& event) { delivered += event.text.size(); };
    size_t marker_bytes = 0;
    for (const char byte : text) {
      parser.Feed({&byte, 1}, count);
      ++fed;
      if (absl::EndsWith(absl::string_view(text).substr(0, fed), "</think>") && marker_bytes == 0) {
        marker_bytes = 8;  // the first one, which ends the reasoning and is no text
      }
      REQUIRE(fed - delivered - marker_bytes <= StreamingParser::kMaxHeldTextBytes);
    }
  }
}

TEST_CASE("tool markup is held back no longer than its cap") {
  for (const std::string& start :
       {std::string(CALLS INVOKE("f") PARAMETER("a", "false")),
        std::string(CALLS INVOKE("f") "<" DSML "parameter name=\""),
        std::string(CALLS "<" DSML "invoke name=\""), std::string(CALLS "<" DSML "invoke")}) {
    const std::string text = start + std::string(StreamingParser::kMaxHeldBytes, ' ');
    StreamingParser parser({.mode = kChat});
    size_t held = 0;
    const auto count = [&](const ParserEvent& event) {
      if (event.kind != Kind::kToolCallStart) held = 0;
    };
    for (size_t i = 0; i < text.size(); i += 1000) {
      const absl::string_view piece = absl::string_view(text).substr(i, 1000);
      held += piece.size();
      parser.Feed(piece, count);
      REQUIRE(held <= StreamingParser::kMaxHeldBytes);
    }
    CHECK(held <= 1000);
  }
}

TEST_CASE("time is linear in hostile texts, in large pieces and small") {
  constexpr size_t kBytes = 1 << 20;
  const std::string call = CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END INVOKE_END;
  for (const std::string& unit :
       {std::string("<"), std::string("\n"), std::string("<｜DSML｜"),
        std::string("<｜DSML｜tool_call"), std::string("\n\n<｜DSML｜tool_calls"),
        std::string(CALLS), std::string(CALLS "<" DSML "invoke name=\""), call,
        std::string(CALLS INVOKE("f") "<" DSML "parameter name=\"")}) {
    const std::string text = Repeated(unit, kBytes);
    INFO(unit);
    // 0.02 s at the promised 50 MB/s; quadratic time would take minutes.
    CHECK(Seconds(text, text.size()) < 2);
    CHECK(Seconds(text, 1) < 3);
  }
  for (const std::string& start : {std::string(CALLS INVOKE("f") PARAMETER("a", "false")),
                                   std::string(CALLS INVOKE("f") PARAMETER("a", "true")),
                                   std::string(CALLS "<" DSML "invoke name=\"")}) {
    for (const char* unit : {"[", "<", "</｜DSML｜param", "</｜DSML｜invok", "\" string=\""}) {
      const std::string text = start + Repeated(unit, kBytes);
      INFO(unit);
      CHECK(Seconds(text, text.size()) < 2);
      CHECK(Seconds(text, 1) < 3);
    }
  }
}
