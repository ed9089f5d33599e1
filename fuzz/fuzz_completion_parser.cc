// SPDX-License-Identifier: Apache-2.0
// Any bytes as a completion, whole and in pieces. The input is a line "MODE CUT CUT ...\n", each a
// character (MODE: its lowest bit; CUT: a place in 256ths), then the completion.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "lib/text/completion_markup.h"
#include "lib/text/completion_parser.h"
#include "lib/text/python_json.h"
#include "lib/text/streaming_parser.h"
#include "tests/lib/text/event_log.h"

namespace {

using dsv4::ParserEvent;
using dsv4::ThinkingMode;
using dsv4::test::EventLog;
using dsv4::test::LoggedEvent;
using dsv4::test::Streamed;
using Kind = ParserEvent::Kind;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

// What holds of every log.
void CheckLog(const EventLog& log) {
  Require(log.whole_characters());
  int started = 0, ended = 0;
  for (const LoggedEvent& event : log.events()) {
    if (event.kind == Kind::kToolCallStart) Require(event.call == started++);
    const bool breaks_off =
        (event.kind == Kind::kMalformed || event.kind == Kind::kEnd) && event.call >= 0;
    if (event.kind == Kind::kToolCallEnd || breaks_off) Require(event.call == ended++);
    Require((event.kind == Kind::kEnd) == (&event == &log.events().back()));
  }
  Require(started == ended);
  for (int call = 0; call < started; ++call) {
    Require(dsv4::IsJson(log.Joined(Kind::kToolCallArguments, call)));
  }
}

// The strict parser takes a marker of another turn for text; the stream ends there as malformed.
bool NamesAnotherTurn(absl::string_view completion) {
  for (const absl::string_view marker :
       {dsv4::markup::kUser, dsv4::markup::kAssistant, dsv4::markup::kLatestReminder}) {
    if (absl::StrContains(completion, marker)) return true;
  }
  return false;
}

// The events give the message that the strict parser gives.
void CheckMessage(const EventLog& log, const dsv4::ChatMessage& message) {
  Require(log.Joined(Kind::kReasoning) == message.reasoning_content);
  Require(log.Joined(Kind::kText) == message.content);
  Require(log.Count(Kind::kMalformed) == 0);
  Require(log.Count(Kind::kToolCallStart) == static_cast<int>(message.tool_calls.size()));
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    const int call = static_cast<int>(i);
    Require(log.Joined(Kind::kToolCallStart, call) == message.tool_calls[i].name);
    const bool repaired =
        std::any_of(log.events().begin(), log.events().end(),
                    [&](const LoggedEvent& event) { return event.call == call && event.repaired; });
    const std::string arguments = log.Joined(Kind::kToolCallArguments, call);
    if (!repaired) Require(arguments == message.tool_calls[i].arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line_end = std::min(input.find('\n'), size);
  const absl::string_view completion = input.substr(std::min(line_end + 1, size));
  const bool thinking = line_end > 0 && (data[0] & 1) != 0;
  const ThinkingMode mode = thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  std::vector<size_t> cuts;
  for (size_t i = 1; i < line_end; ++i) cuts.push_back(data[i] * completion.size() / 256);
  std::sort(cuts.begin(), cuts.end());

  const EventLog whole = Streamed(completion, mode);
  CheckLog(whole);
  const EventLog in_pieces = Streamed(completion, mode, cuts);
  CheckLog(in_pieces);
  Require(in_pieces.events() == whole.events());
  const auto message = dsv4::ParseCompletion(completion, mode);
  if (message.ok() && !NamesAnotherTurn(completion)) CheckMessage(whole, *message);
  return 0;
}
