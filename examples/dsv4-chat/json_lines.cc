// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/json_lines.h"

#include <string_view>

#include "examples/console/json_text.h"
#include "examples/console/terminal.h"

namespace chat {
namespace {

void WriteLine(const JsonObject& object) { WriteOut(object.text() + "\n"); }

JsonObject Line(std::string_view event) { return JsonObject().String("event", event); }

std::string_view FinishName(dsv4_finish finish) {
  switch (finish) {
    case DSV4_FINISH_NONE:
      return "interrupted";
    case DSV4_FINISH_STOP:
      return "stop";
    case DSV4_FINISH_TOOL_CALL:
      return "tool_call";
    case DSV4_FINISH_LENGTH:
      return "length";
    case DSV4_FINISH_CONTEXT_FULL:
      return "context_full";
    default:
      return "other";
  }
}

}  // namespace

void JsonLines::Event(const dsv4::Event& event) {
  const std::string& text = event.text;
  switch (event.type) {
    case DSV4_PARSER_REASONING:
      return WriteLine(Line("reasoning").String("text", text));
    case DSV4_PARSER_TEXT:
      return WriteLine(Line("text").String("text", text));
    case DSV4_PARSER_TOOL_CALL_START:
      return WriteLine(Line("tool_call_start")
                           .Number("call", int64_t{event.call})
                           .String("id", event.id)
                           .String("name", text));
    case DSV4_PARSER_TOOL_CALL_ARGUMENTS:
      return WriteLine(Line("tool_call_arguments")
                           .Number("call", int64_t{event.call})
                           .String("text", text)
                           .Bool("repaired", event.repaired));
    case DSV4_PARSER_TOOL_CALL_END:
      return WriteLine(Line("tool_call_end")
                           .Number("call", int64_t{event.call})
                           .Bool("repaired", event.repaired));
    case DSV4_PARSER_MALFORMED:
      return WriteLine(Line("malformed")
                           .Number("call", int64_t{event.call})
                           .String("text", text)
                           .String("reason", event.reason));
    case DSV4_PARSER_END:
      incomplete_ = event.incomplete;
      cut_ = text;
      return;
    default:
      return;  // of a newer library
  }
}

void JsonLines::End(const TurnEnd& end) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  WriteLine(Line("end")
                .String("finish", FinishName(end.finish))
                .Bool("incomplete", incomplete_)
                .String("text", cut_)
                .Number("prompt_tokens", end.stats.prompt_tokens)
                .Number("cached_tokens", end.stats.cached_tokens)
                .Number("generated_tokens", end.stats.generated_tokens)
                .Number("context_tokens", end.stats.used_tokens)
                .Number("drafted_tokens", end.stats.drafted_tokens)
                .Number("accepted_tokens", end.stats.accepted_tokens)
                .Number("first_token_seconds", end.first_token_seconds)
                .Number("prefill_seconds", end.stats.prefill_seconds)
                .Number("decode_seconds", end.stats.decode_seconds)
                .Number("prefill_tokens_per_second",
                        rate(end.stats.prefilled_tokens, end.stats.prefill_seconds))
                .Number("decode_tokens_per_second",
                        rate(end.stats.generated_tokens, end.stats.decode_seconds))
                .Number("measured_decode_tokens_per_second", end.measured_tokens_per_second)
                .Number("predicted_decode_tokens_per_second", end.predicted_tokens_per_second)
                .Number("context_limit", end.stats.context_tokens)
                .Number("cache_bytes", static_cast<int64_t>(end.stats.cache_bytes)));
}

void WriteJsonError(const Failure& failure) {
  WriteLine(
      Line("error")
          .String("status", failure.status == DSV4_OK ? "" : dsv4_status_get_name(failure.status))
          .Number("exit_code", int64_t{failure.exit_code})
          .String("message", failure.message));
}

}  // namespace chat
