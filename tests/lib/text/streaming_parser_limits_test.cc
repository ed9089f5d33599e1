// SPDX-License-Identifier: Apache-2.0
// What the streaming parser holds back at most, the caps of names and values, and its time.
#include <iterator>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lib/text/streamed_completion.h"

namespace dsv4::test {
namespace {

using Kind = ParserEvent::Kind;

// Bytes of text in the events.
size_t Delivered(const std::string& text, size_t piece) {
  StreamingParser parser({.mode = kThinking});
  size_t delivered = 0;
  const auto count = [&](const ParserEvent& event) { delivered += event.text.size(); };
  for (size_t i = 0; i < text.size(); i += piece) {
    parser.Feed(absl::string_view(text).substr(i, piece), count);
  }
  parser.End(count);
  return delivered;
}

std::string Repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
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

TEST_CASE("calls in the reasoning are held no longer than the cap") {
  const std::string start = "plan\n\n" CALLS INVOKE("f") PARAMETER("a", "true");
  StreamingParser parser({.mode = kThinking});
  EventLog log;
  const auto add = [&](const ParserEvent& event) { log.Add(event); };
  parser.Feed(start, add);
  CHECK(log.Count(Kind::kToolCallStart) == 0);
  const std::string more(StreamingParser::kMaxHeldBytes, 'x');
  parser.Feed(more, add);
  CHECK(log.Joined(Kind::kToolCallArguments, 0).size() > more.size());
  parser.Feed(PARAMETER_END INVOKE_END CALLS_END EOS, add);
  parser.End(add);
  CHECK(log.Count(Kind::kToolCallEnd) == 1);
  CHECK(log.Joined(Kind::kReasoning) == "plan");
  CheckLog(log);
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

// Each takes 0.02 s at the promised 50 MB/s (bench_parser). Quadratic time would take minutes, and
// the test would not end within its time-out.
TEST_CASE("time is linear in hostile texts, in large pieces and small") {
  constexpr size_t kBytes = 1 << 20;
  const std::string call = CALLS INVOKE("f") PARAMETER("a", "true") "b" PARAMETER_END INVOKE_END;
  for (const std::string& unit :
       {std::string("<"), std::string("\n"), std::string("<｜DSML｜"),
        std::string("<｜DSML｜tool_call"), std::string("\n\n<｜DSML｜tool_calls"),
        std::string(CALLS), std::string(CALLS "<" DSML "invoke name=\""), call,
        std::string(CALLS INVOKE("f") "<" DSML "parameter name=\""), std::string("\n" INVOKE("f")),
        std::string(INVOKE("f") INVOKE_END "x\n"), call + "</think>" + call,
        call + call + CALLS_END "x"}) {
    const std::string text = Repeated(unit, kBytes);
    INFO(unit);
    CHECK(Delivered(text, text.size()) > 0);
    CHECK(Delivered(text, 1) > 0);
  }
  for (const std::string& start : {std::string(CALLS INVOKE("f") PARAMETER("a", "false")),
                                   std::string(CALLS INVOKE("f") PARAMETER("a", "true")),
                                   std::string(CALLS "<" DSML "invoke name=\"")}) {
    for (const char* unit : {"[", "<", "</｜DSML｜param", "</｜DSML｜invok", "\" string=\""}) {
      const std::string text = start + Repeated(unit, kBytes);
      INFO(unit);
      CHECK(Delivered(text, text.size()) > 0);
      CHECK(Delivered(text, 1) > 0);
    }
  }
}

}  // namespace
}  // namespace dsv4::test
