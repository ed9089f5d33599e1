// SPDX-License-Identifier: Apache-2.0
#include "capi/parser_event.h"

#include "absl/strings/string_view.h"
#include "capi/enum_table.h"

namespace dsv4::capi {
namespace {

using Kind = ParserEvent::Kind;

constexpr EnumValue<Kind> kTypes[] = {
    {DSV4_PARSER_REASONING, Kind::kReasoning},
    {DSV4_PARSER_TEXT, Kind::kText},
    {DSV4_PARSER_TOOL_CALL_START, Kind::kToolCallStart},
    {DSV4_PARSER_TOOL_CALL_ARGUMENTS, Kind::kToolCallArguments},
    {DSV4_PARSER_TOOL_CALL_END, Kind::kToolCallEnd},
    {DSV4_PARSER_MALFORMED, Kind::kMalformed},
    {DSV4_PARSER_END, Kind::kEnd},
};

const char* NeverNull(absl::string_view text) { return text.empty() ? "" : text.data(); }

}  // namespace

dsv4_parser_event EventOf(const ParserEvent& event) {
  dsv4_parser_event out = DSV4_PARSER_EVENT_INIT;
  out.type = EnumTo(kTypes, event.kind);
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
