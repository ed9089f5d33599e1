// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_parser.h"

#include <algorithm>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/lib/text/parse_cases.h"
#include "tests/lib/text/streamed_completion.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

using namespace dsv4;
using dsv4::test::CheckLog;
using dsv4::test::EventLog;
using dsv4::test::EveryByte;
using dsv4::test::kChat;
using dsv4::test::kThinking;
using dsv4::test::LoggedEvent;
using dsv4::test::ParseCase;
using dsv4::test::Streamed;
using Kind = ParserEvent::Kind;

namespace {

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
      // Line breaks that are left out between calls are no fault here.
      const bool same_line =
          absl::StrContains(one.text, "><｜DSML｜") || absl::StrContains(one.text, "></｜DSML｜");
      CHECK((log.Count(Kind::kMalformed) > 0 || end.incomplete || !end.stopped || reasoning_open ||
             same_line));
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

TEST_CASE("reasoning ends at its marker, or at tool calls that no marker follows") {
  EventLog log = Streamed("plan</think>text", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK(log.Joined(Kind::kText) == "text");
  CHECK(log.Count(Kind::kMalformed) == 0);

  log = Streamed("plan\n\n" CALLS INVOKE("f") INVOKE_END CALLS_END EOS, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK(log.Joined(Kind::kText) == "");
  CHECK(log.Count(Kind::kToolCallEnd) == 1);
  CHECK(log.Count(Kind::kMalformed) == 0);

  // Without the line breaks too.
  log = Streamed("plan " CALLS INVOKE("f") INVOKE_END CALLS_END EOS, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan ");
  CHECK(log.Count(Kind::kToolCallEnd) == 1);

  log = Streamed("plan", kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CHECK_FALSE(log.events().back().stopped);
}

TEST_CASE("calls may stand on one line") {
  const std::string call =
      "<" DSML "invoke name=\"f\"><" DSML "parameter name=\"a\" string=\"true\">x\ny</" DSML
      "parameter><" DSML "parameter name=\"b\" string=\"false\">[1]</" DSML "parameter></" DSML
      "invoke>";
  const std::string empty = "<" DSML "invoke name=\"g\"></" DSML "invoke>";
  const std::string wrapped = "<" DSML "tool_calls>" + call + empty + "</" DSML "tool_calls>";
  // Some line breaks may be there.
  const std::string mixed = CALLS + call + "\n" + empty + CALLS_END;
  std::mt19937 random(20261128);
  for (const std::string& text : {"\n\n" + wrapped + EOS, "text" + wrapped + EOS,
                                  "\n\n" + mixed + EOS, "text\n" + call + empty + EOS}) {
    INFO(text);
    const EventLog log = Streamed(text, kChat);
    CHECK(log.Count(Kind::kMalformed) == 0);
    REQUIRE(log.Count(Kind::kToolCallEnd) == 2);
    CHECK(log.Joined(Kind::kToolCallArguments, 0) == R"({"a": "x\ny", "b": [1]})");
    CHECK(log.Joined(Kind::kToolCallArguments, 1) == "{}");
    CHECK(log.events().back().stopped);
    CheckSplits(text, kChat, random);
  }
}

TEST_CASE("the bars of all markers of calls may be doubled") {
  std::mt19937 random(20261129);
  const std::string call =
      "\n\n" CALLS INVOKE("f") PARAMETER("a", "true") "x ｜DSML｜ y" PARAMETER_END PARAMETER(
          "b", "false") "[1]" PARAMETER_END INVOKE_END INVOKE("g") INVOKE_END CALLS_END;
  const std::string bare = "text\n" INVOKE("f") PARAMETER("a", "true") "x" PARAMETER_END INVOKE_END;
  for (const std::string& single : {call, bare}) {
    const std::string text = absl::StrReplaceAll(single, {{DSML, "｜" DSML "｜"}}) + EOS;
    INFO(text);
    for (const ThinkingMode mode : {kChat, kThinking}) {
      const EventLog log = Streamed(text, mode);
      CHECK(log.Count(Kind::kMalformed) == 0);
      CHECK(log.Count(Kind::kToolCallEnd) == (single == call ? 2 : 1));
      CHECK(log.Joined(Kind::kToolCallArguments, 0) ==
            (single == call ? R"({"a": "x ｜｜DSML｜｜ y", "b": [1]})" : R"({"a": "x"})"));
      CHECK(log.events().back().stopped);
      CheckSplits(text, mode, random);
    }
  }
  // In a value they are text: those of the calls count.
  const std::string quoted = "\n\n" CALLS INVOKE("f") PARAMETER(
      "a", "true") "</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>" PARAMETER_END INVOKE_END
      CALLS_END EOS;
  const EventLog log = Streamed(quoted, kChat);
  CHECK(log.Count(Kind::kMalformed) == 0);
  CHECK(log.Joined(Kind::kToolCallArguments, 0) ==
        R"({"a": "</｜｜DSML｜｜parameter>\n</｜｜DSML｜｜invoke>"})");
  // Outside of calls they are malformed, as single ones are.
  CHECK(Streamed("a <｜｜DSML｜｜b", kChat).Count(Kind::kMalformed) == 1);
  CHECK(Streamed("a <｜｜DSML｜｜b", kChat).Joined(Kind::kText) == "a <｜｜DSML｜｜b");
}

TEST_CASE("what only looks like a marker is delivered") {
  for (const char* text : {"a < b << c <<< d", "</thin", "</think", "<｜", "\n\n", "\n\n<",
                           "a\n\n\nb", "<｜end▁of▁sentence｜", "<think", "｜DSML", "\n\n<｜",
                           "<｜｜>", "｜end▁of▁sentence｜>", "<｜User", "｜User｜>"}) {
    INFO(text);
    const EventLog log = Streamed(text, kChat, EveryByte(std::string(text).size()));
    CHECK(log.Joined(Kind::kText) == text);
    CHECK(log.events().size() == 2);
    CHECK_FALSE(log.events().back().incomplete);
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
  parser.End(add);
  CHECK(pieces == std::vector<std::string>{"{\"city\": \"", "P", "a", "r", "\\\"", "i", "s", "\\n",
                                           "🚀", "\"", ", \"days\": [1, 2]", "}"});
  CHECK(ids == std::vector<std::string>{"turn7_0", "turn7_1"});
  const EventLog log = Streamed(text, kChat);
  CHECK(log.Joined(Kind::kText) == "Look:");
  CHECK(log.Joined(Kind::kToolCallArguments, 1) == "{}");
  // As new after End.
  EventLog again;
  parser.Feed("x", [&](const ParserEvent& event) { again.Add(event); });
  parser.End([&](const ParserEvent& event) { again.Add(event); });
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

TEST_CASE("malformed tool markup ends as content, with an event") {
  struct Case {
    const char* text;
    const char* content;
    const char* arguments;  // of call 0; null when none starts
    bool complete;
  };
  const Case cases[] = {
      {"\n\n" CALLS "call f!", "\n\n" CALLS "call f!", nullptr, false},
      {"\n\n" CALLS "<" DSML "invoke f>", "\n\n" CALLS "<" DSML "invoke f>", nullptr, false},
      {"\n\n" CALLS "<" DSML "invoke name=\"f\"" PARAMETER("a", "true") "b",
       "\n\n" CALLS "<" DSML "invoke name=\"f\"" PARAMETER("a", "true") "b", nullptr, false},
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
    CHECK(log.Count(Kind::kToolCallEnd) == one.complete);
    if (one.arguments != nullptr) {
      CHECK(log.Joined(Kind::kToolCallArguments, 0) == one.arguments);
    }
    CHECK_FALSE(log.events().back().incomplete);
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
      {"<｜DS", nullptr, "<｜DS"},
      {"\n\n<｜DSML｜", nullptr, "\n\n<｜DSML｜"},
      {"<" DSML "invo", nullptr, "<" DSML "invo"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b</" DSML "para", R"({"a": "b"})",
       "</" DSML "para"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b</" DSML "para" EOS, R"({"a": "b"})",
       "</" DSML "para"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b<" EOS, R"({"a": "b"})", "<"},
      {CALLS INVOKE("f") PARAMETER("a", "true") "b<｜end▁of", R"({"a": "b"})", "<｜end▁of"},
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
    CHECK(end.incomplete);
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
    CHECK(log.events().back().incomplete);
    CHECK(log.events().back().call == -1);
    CHECK(log.events().back().text == rest);
    CHECK(log.events() == Streamed(text, kChat).events());
  }
  // The bracket of the start of the calls is cut off with them.
  CHECK(Streamed("\n\n<" DSML "tool_calls>", kChat).events().back().text == "\n\n<" DSML
                                                                            "tool_calls>");
}

// Whatever is cut off, no piece of markup is text or part of a value, and no call is whole that is
// not.
TEST_CASE("no cut makes tool markup text, or a part of a value") {
  const std::string value = "Paris\n\"é\"";
  for (const auto& [mode, before] :
       std::vector<std::pair<ThinkingMode, std::string>>{{kChat, ""},
                                                         {kChat, "Look:\n\n"},
                                                         {kThinking, "plan</think>\n\n"},
                                                         {kThinking, "p\n"}}) {
    for (const bool wrapped : {true, false}) {
      const std::string parameter = PARAMETER("a", "true") + value;
      const std::string call =
          INVOKE("f") + parameter +
          PARAMETER_END PARAMETER("b", "false") "[1, 2]" PARAMETER_END INVOKE_END;
      const std::string text =
          absl::StrCat(before, wrapped ? CALLS : "", call, call, wrapped ? CALLS_END : "");
      for (size_t cut = 0; cut <= text.size(); ++cut) {
        // No token ends the completion within a character.
        const bool whole_characters = ValidUtf8Prefix(text.substr(0, cut)) == cut;
        for (const bool ends : {false, true}) {
          if (ends && !whole_characters) continue;
          const std::string completion = text.substr(0, cut) + (ends ? EOS : "");
          INFO(completion);
          const EventLog log = Streamed(completion, mode, EveryByte(completion.size()));
          CheckLog(log);
          CHECK(log.events() == Streamed(completion, mode).events());
          std::string delivered;
          bool reported = false;
          for (const LoggedEvent& event : log.events()) {
            reported |= event.kind == Kind::kMalformed;
            if (event.kind != Kind::kText && event.kind != Kind::kReasoning) continue;
            delivered += event.text;
            if (!reported && !ends) CHECK(event.text.find("｜D") == std::string::npos);
          }
          if (!ends) CHECK_FALSE(reported);
          // Whole calls are those before the cut.
          const std::string fed = text.substr(0, cut);
          int whole = 0;
          for (size_t at = 0; (at = fed.find("</" DSML "invoke", at)) != std::string::npos; ++at) {
            ++whole;
          }
          if (!reported) CHECK(log.Count(Kind::kToolCallEnd) == whole);
          for (int n = 0; n < log.Count(Kind::kToolCallStart); ++n) {
            const std::string arguments = log.Joined(Kind::kToolCallArguments, n);
            CHECK(arguments.find("｜D") == std::string::npos);
            CHECK(arguments.find("<") == std::string::npos);
          }
          const LoggedEvent& end = log.events().back();
          CHECK(end.stopped == ends);
        }
      }
      const EventLog log = Streamed(text + EOS, mode);
      CHECK(log.Count(Kind::kToolCallEnd) == 2);
      CHECK(log.Count(Kind::kMalformed) == 0);
      CHECK_FALSE(log.events().back().incomplete);
      CHECK(log.Joined(Kind::kToolCallArguments, 1) == R"({"a": "Paris\n\"é\"", "b": [1, 2]})");
    }
  }
}

TEST_CASE("calls without the markers around them are calls where nothing else can be meant") {
  std::mt19937 random(29);
  const std::string call = INVOKE("f") PARAMETER("a", "true") "x" PARAMETER_END INVOKE_END;
  struct Case {
    std::string text;
    const char* content;
    int calls;
  };
  const Case cases[] = {
      {"hi\n\n" + call + EOS, "hi", 1},
      {"hi\n" + call + EOS, "hi\n", 1},
      {call + EOS, "", 1},
      {call, "", 1},
      {call + " \n", " \n", 1},
      {"hi\n\n" + call + call + EOS, "hi", 2},
      {"hi\n\n" + call + CALLS_END EOS, "hi", 1},
      {"hi\n\n" + call + CALLS_END "so", "hiso", 1},
      {"hi\n\n<" DSML "tool_call>\n" + call + CALLS_END EOS, "hi\n\n<" DSML "tool_call>\n", 1},
      {"\n\n" CALLS + call + CALLS_END "\n\n" + call + EOS, "", 2},
      // Where text follows, or the line has begun, it is a quotation.
      {"hi\n\n" + call + "is how." EOS, nullptr, 0},
      {"hi " + call + EOS, nullptr, 0},
      {"hi\n\n" INVOKE("f") "{\"a\": 1}\n" INVOKE_END EOS, nullptr, 0},
      {"hi\n\n<" DSML "invoked>" EOS, nullptr, 0},
      {EOS + call, nullptr, 0},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    CheckSplits(one.text, kChat, random);
    CheckSplits("plan</think>" + one.text, kThinking, random);
    const EventLog log = Streamed(one.text, kChat);
    CHECK(log.Count(Kind::kToolCallStart) == one.calls);
    CHECK(log.Count(Kind::kToolCallEnd) == one.calls);
    if (one.content != nullptr) {
      CHECK(log.Joined(Kind::kText) == one.content);
      continue;
    }
    std::string text = one.text;
    for (size_t at; (at = text.find(EOS)) != std::string::npos;) text.erase(at, sizeof EOS - 1);
    CHECK(log.Joined(Kind::kText) == text);
    // Not a byte of the markup before it is reported.
    for (const LoggedEvent& event : log.events()) {
      if (event.kind == Kind::kMalformed) break;
      CHECK(event.text.find('<') == std::string::npos);
    }
    CHECK(log.Count(Kind::kMalformed) >= 1);
  }
}

TEST_CASE("reasoning that quotes tool markup continues to its end") {
  std::mt19937 random(31);
  const std::string call = INVOKE("f") PARAMETER("a", "true") "x" PARAMETER_END INVOKE_END;
  for (const std::string& quoted :
       {std::string("I should use <" DSML "tool_calls> now.\nok"), std::string(CALLS),
        std::string("\n\n" CALLS "and so on"), std::string(CALLS INVOKE("f")),
        std::string(CALLS INVOKE("$TOOL_NAME") PARAMETER("$NAME", "true|false")),
        CALLS + call + CALLS_END, "\n\n" CALLS + call + CALLS_END "\nfits.", "say\n\n" + call,
        call + call, std::string("<" DSML "invoke"), std::string("the " DSML " marker"),
        CALLS INVOKE("f") + std::string(PARAMETER("a", "true")),
        CALLS INVOKE("f") + std::string(PARAMETER("a", "false") "1"),
        std::string(CALLS INVOKE("f") PARAMETER("a", "true") "x/" DSML "parameter>")}) {
    const std::string text = "think: " + quoted + "</think>a" EOS;
    INFO(text);
    CheckSplits(text, kThinking, random);
    const EventLog log = Streamed(text, kThinking);
    CHECK(log.Joined(Kind::kReasoning) == "think: " + quoted);
    CHECK(log.Joined(Kind::kText) == "a");
    CHECK(log.Count(Kind::kToolCallStart) == 0);
    CHECK(log.Count(Kind::kMalformed) == 1);
    CHECK(log.events().back().stopped);
    // Calls after it are calls.
    const EventLog calls =
        Streamed("think: " + quoted + "</think>\n\n" CALLS + call + CALLS_END EOS, kThinking);
    CHECK(calls.Joined(Kind::kReasoning) == "think: " + quoted);
    CHECK(calls.Joined(Kind::kText) == "");
    CHECK(calls.Count(Kind::kToolCallEnd) == 1);
    CHECK(calls.Joined(Kind::kToolCallStart, 0) == "f");
  }
  // Calls without a sign that they were quoted.
  for (const std::string& after : {std::string(), std::string(EOS), std::string("\n" EOS)}) {
    const EventLog log = Streamed("plan\n" + call + after, kThinking);
    CHECK(log.Joined(Kind::kReasoning) == "plan\n");
    CHECK(log.Count(Kind::kToolCallEnd) == 1);
  }
  // A quotation that breaks off, and calls.
  const EventLog log = Streamed("a " CALLS "b\n\n" CALLS + call + CALLS_END EOS, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "a " CALLS "b");
  CHECK(log.Count(Kind::kToolCallEnd) == 1);
}

TEST_CASE("a marker of another turn is reported and ends this one") {
  std::mt19937 random(37);
  for (const std::string marker : {"<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"}) {
    const std::string text = "Paris.\n" + marker + "And of Italy?<｜Assistant｜></think>Rome." EOS;
    INFO(text);
    CheckSplits(text, kChat, random);
    CheckSplits(text, kThinking, random);
    const EventLog log = Streamed(text, kChat);
    REQUIRE(log.events().size() > 3);
    CHECK(log.events()[0].text == "Paris.\n");
    CHECK(log.events()[1].kind == Kind::kMalformed);
    CHECK(log.events()[1].text == marker);
    CHECK(log.events()[2].reason == "text after the end");
    CHECK(log.Joined(Kind::kText) == "Paris.\nAnd of Italy?Rome.");
    CHECK(log.events().back().stopped);
    CHECK_FALSE(Streamed("Paris." + marker, kChat).events().back().stopped);
    CHECK(Streamed("plan" + marker + "x", kThinking).Joined(Kind::kReasoning) == "plan");
    // In a value it is text, as published.
    const EventLog value = Streamed("\n\n" CALLS INVOKE("f") PARAMETER("a", "true") + marker +
                                        PARAMETER_END INVOKE_END CALLS_END EOS,
                                    kChat);
    CHECK(value.Joined(Kind::kToolCallArguments, 0) == "{\"a\": \"" + marker + "\"}");
    CHECK(value.Count(Kind::kMalformed) == 0);
  }
}

TEST_CASE("who sees the tokens tells the parser what ended the turn") {
  const auto parsed = [](const std::string& text) {
    StreamingParser parser({.mode = kChat, .turn_markers = false});
    EventLog log;
    const auto add = [&](const ParserEvent& event) { log.Add(event); };
    parser.Feed(text, add);
    parser.End(add, "<｜User｜>");
    CheckLog(log);
    CHECK(log.Count(Kind::kMalformed) == 1);
    CHECK(log.events()[log.events().size() - 2].text == "<｜User｜>");
    CHECK_FALSE(log.events().back().stopped);
    return log;
  };
  CHECK(parsed("say <｜User｜> <").Joined(Kind::kText) == "say <｜User｜> <");
  const EventLog log = parsed("\n\n" CALLS INVOKE("f") PARAMETER("a", "true") "b</");
  CHECK(log.events().back().call == 0);
  CHECK(log.events().back().text == "</");
  CHECK(log.Joined(Kind::kToolCallArguments, 0) == R"({"a": "b"})");
}

TEST_CASE("what a call has instead of parameters is named") {
  const auto reason = [](const std::string& text) {
    const EventLog log = Streamed(text, kChat);
    for (const LoggedEvent& event : log.events()) {
      if (event.kind == Kind::kMalformed) return event.reason;
    }
    return std::string();
  };
  CHECK(reason("\n\n" CALLS INVOKE("f") "{\"a\": 1}\n" INVOKE_END CALLS_END EOS) ==
        "neither a parameter nor the end of the call");
  CHECK(reason("\n\n" CALLS INVOKE("f") "x" PARAMETER("a", "true") "b" PARAMETER_END) ==
        "neither a parameter nor the end of the call");
  CHECK(reason("\n\n" CALLS "<" DSML "invoke name=\"f\"/>\n" INVOKE_END CALLS_END EOS) ==
        "tool name without an end");
}

TEST_CASE("bytes that are not UTF-8 become replacement characters") {
  std::mt19937 random(7);
  const std::string text = "a\xE5\xA4\xA9\xE5\xA4x\xFF</think>\xF0\x9F\x9A\x80\xF0\x9F";
  const EventLog log = Streamed(text, kThinking);
  CHECK(log.Joined(Kind::kReasoning) == "a天\uFFFDx\uFFFD");
  CHECK(log.Joined(Kind::kText) == "🚀\uFFFD");
  CheckSplits(text, kThinking, random);
}
