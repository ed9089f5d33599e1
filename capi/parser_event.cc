// SPDX-License-Identifier: Apache-2.0
#include "capi/parser_event.h"

#include "absl/strings/string_view.h"

namespace dsv4::capi {
namespace {

dsv4_parser_event_type TypeOf(ParserEvent::Kind kind) {
  switch (kind) {
    case ParserEvent::Kind::kReasoning:
      return DSV4_PARSER_REASONING;
    case ParserEvent::Kind::kText:
      return DSV4_PARSER_TEXT;
    case ParserEvent::Kind::kToolCallStart:
      return DSV4_PARSER_TOOL_CALL_START;
    case ParserEvent::Kind::kToolCallArguments:
      return DSV4_PARSER_TOOL_CALL_ARGUMENTS;
    case ParserEvent::Kind::kToolCallEnd:
      return DSV4_PARSER_TOOL_CALL_END;
    case ParserEvent::Kind::kMalformed:
      return DSV4_PARSER_MALFORMED;
    case ParserEvent::Kind::kEnd:
      return DSV4_PARSER_END;
  }
  return 0;
}

const char* NeverNull(absl::string_view text) { return text.empty() ? "" : text.data(); }

}  // namespace

dsv4_parser_event EventOf(const ParserEvent& event) {
  dsv4_parser_event out = DSV4_PARSER_EVENT_INIT;
  out.type = TypeOf(event.kind);
  out.call = event.call;
  out.repaired = event.repaired;
  out.incomplete = event.incomplete;
  out.stopped = event.stopped;
  out.text = NeverNull(event.text);
  out.text_length = event.text.size();
  out.id = NeverNull(event.id);
  out.id_length = event.id.size();
  out.reason = NeverNull(event.reason);
  out.reason_length = event.reason.size();
  return out;
}

}  // namespace dsv4::capi
