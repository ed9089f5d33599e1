// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/utf8.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

using markup::MarkerSet;
using Kind = ParserEvent::Kind;
using Match = MarkerSet::Match;

constexpr absl::string_view kOpeningAfterText = "\n\n<｜DSML｜";
// Models sometimes write the bars of all markers of a call twice.
constexpr absl::string_view kDoubledOpening = "<｜｜DSML｜｜";
constexpr absl::string_view kDoubledClosing = "</｜｜DSML｜｜";
constexpr absl::string_view kDoubledOpeningAfterText = "\n\n<｜｜DSML｜｜";
constexpr MarkerSet kMarkers = {
    markup::kThinkEnd, markup::kThinkStart, markup::kEndOfSentence,  markup::kBeginOfSentence,
    markup::kDsml,     markup::kOpening,    markup::kClosing,        kOpeningAfterText,
    kDoubledOpening,   kDoubledClosing,     kDoubledOpeningAfterText};
constexpr MarkerSet kMarkersAndTurns = {
    markup::kThinkEnd,  markup::kThinkStart,    markup::kEndOfSentence,   markup::kBeginOfSentence,
    markup::kDsml,      markup::kOpening,       markup::kClosing,         kOpeningAfterText,
    kDoubledOpening,    kDoubledClosing,        kDoubledOpeningAfterText, markup::kUser,
    markup::kAssistant, markup::kLatestReminder};
constexpr MarkerSet kThinkEnd = {markup::kThinkEnd};
constexpr MarkerSet kEndOfSentence = {markup::kEndOfSentence};

// The opening markers that begin calls.
constexpr absl::string_view kCalls = markup::kCallsStart.substr(markup::kOpening.size());
constexpr absl::string_view kInvoke = markup::kInvoke.substr(markup::kOpening.size());
constexpr MarkerSet kCallsOrInvoke = {kCalls, kInvoke};

constexpr absl::string_view kToolNameEnd = "\">\n";
constexpr absl::string_view kNoParameter = "neither a parameter nor the end of the call";
constexpr absl::string_view kOtherTurn = "a control marker of another turn";

// Bytes of a Feed that are worked off at a time.
constexpr size_t kSliceBytes = 64 << 10;

bool IsDoubled(absl::string_view opening) { return absl::StrContains(opening, "｜｜"); }

constexpr size_t kEndSize = markup::kEndOfSentence.size();
constexpr MarkerSet kToolNameStart = {markup::kToolNameStart};
constexpr MarkerSet kKeyStart = {markup::kKeyStart};

bool IsTurnMarker(absl::string_view marker) {
  return marker == markup::kUser || marker == markup::kAssistant ||
         marker == markup::kLatestReminder;
}

// markup::ToolName, also without a line break.
std::optional<absl::string_view> ToolNameIn(absl::string_view text) {
  if (const auto name = markup::ToolName(text)) return name;
  if (!absl::ConsumeSuffix(&text, "\">")) return std::nullopt;
  return text;
}

// Whether `held`, the start of a marker, can be no other than one of tool markup.
bool IsCutMarkup(absl::string_view held) {
  for (const absl::string_view start : {"<｜D", "</｜D", "<｜｜D", "</｜｜D"}) {
    if (absl::StrContains(held, start)) return true;
  }
  return false;
}

}  // namespace

// The markers within calls. After a call, and after a value, "next_" ones end the line before;
// models sometimes leave out the line breaks.
struct StreamingParser::CallMarkup {
  absl::string_view calls_start, invoke, parameter;
  absl::string_view parameter_end, parameter_end_broken, parameter_slash;
  absl::string_view next_invoke, same_line_invoke;
  absl::string_view next_calls_end, same_line_calls_end;
  absl::string_view next_parameter, same_line_parameter;
  absl::string_view next_invoke_end, same_line_invoke_end;
  MarkerSet after_call, after_parameter, in_string_value, after_value, after_tool_name, after_key;
};

#define DSV4_CALL_MARKUP(DSML)                                                                     \
  {                                                                                                \
    .calls_start = "<" DSML "tool_calls>", .invoke = "<" DSML "invoke",                            \
    .parameter = "<" DSML "parameter", .parameter_end = "</" DSML "parameter",                     \
    .parameter_end_broken = "<\n/" DSML "parameter", .parameter_slash = "/" DSML "parameter",      \
    .next_invoke = ">\n<" DSML "invoke", .same_line_invoke = "><" DSML "invoke",                   \
    .next_calls_end = ">\n</" DSML "tool_calls>", .same_line_calls_end = "></" DSML "tool_calls>", \
    .next_parameter = ">\n<" DSML "parameter", .same_line_parameter = "><" DSML "parameter",       \
    .next_invoke_end = ">\n</" DSML "invoke", .same_line_invoke_end = "></" DSML "invoke",         \
    .after_call = {">\n<" DSML "invoke", ">\n</" DSML "tool_calls>", "><" DSML "invoke",           \
                   "></" DSML "tool_calls>"},                                                      \
    .after_parameter = {">\n<" DSML "parameter", ">\n</" DSML "invoke", "><" DSML "parameter",     \
                        "></" DSML "invoke"},                                                      \
    .in_string_value = {"</" DSML "parameter", "<\n/" DSML "parameter", "/" DSML "parameter",      \
                        markup::kEndOfSentence},                                                   \
    .after_value = {"</" DSML "parameter", "<\n/" DSML "parameter", "/" DSML "parameter"},         \
    .after_tool_name = {"<" DSML "parameter", "</" DSML "invoke"},                                 \
    .after_key = {markup::kStringTrue, markup::kStringFalse, "/" DSML "parameter"},                \
  }
constexpr StreamingParser::CallMarkup StreamingParser::kSingleBars = DSV4_CALL_MARKUP("｜DSML｜");
constexpr StreamingParser::CallMarkup StreamingParser::kDoubledBars =
    DSV4_CALL_MARKUP("｜｜DSML｜｜");
#undef DSV4_CALL_MARKUP

StreamingParser::StreamingParser(Options options) : options_(std::move(options)) { Reset(); }

void StreamingParser::Reset() {
  state_ = options_.mode == ThinkingMode::kThinking ? State::kReasoning : State::kContent;
  buffer_.clear();
  delivered_ = element_ = scan_ = 0;
  line_start_ = true;
  cut_.clear();
  calls_ = 0;
  call_open_ = value_open_ = value_repaired_ = call_repaired_ = false;
  keys_.clear();
  markup_reported_ = false;
  text_complaint_ = {};
  wrapped_ = stopped_ = false;
  trial_.reset();
}

void StreamingParser::Feed(absl::string_view bytes, Sink sink) {
  while (!bytes.empty()) {
    const absl::string_view slice = bytes.substr(0, kSliceBytes);
    bytes.remove_prefix(slice.size());
    if (cut_.empty()) {
      const size_t valid = ValidUtf8Prefix(slice);
      buffer_.append(slice.data(), valid);
      cut_.assign(slice.data() + valid, slice.size() - valid);
    } else {
      cut_.append(slice.data(), slice.size());
    }
    if (!cut_.empty()) cut_.erase(0, AppendRepairedUtf8(cut_, &buffer_));
    Advance(sink);
  }
}

void StreamingParser::End(Sink sink, absl::string_view turn_marker) {
  while (trial_) {
    AcceptCalls();
    Advance(sink);
  }
  const absl::string_view rest = absl::string_view(buffer_).substr(element_);
  if (state_ == State::kBetweenCalls && !wrapped_ && (rest == ">" || rest == ">\n")) LeaveCalls();
  if (!cut_.empty()) {
    // After what may be the start of a marker the cut character is of that marker.
    const bool held = delivered_ < buffer_.size();
    absl::StrAppend(&buffer_, kReplacementCharacter);
    if (!held) Advance(sink);
  }
  ParserEvent end = {.kind = Kind::kEnd};
  const bool in_markup = state_ >= State::kBetweenCalls && state_ < State::kEnded;
  end.stopped = stopped_;
  if (in_markup && absl::EndsWith(buffer_, markup::kEndOfSentence)) {
    buffer_.resize(buffer_.size() - markup::kEndOfSentence.size());
    end.stopped = true;
  }
  if (state_ == State::kToolName) {
    const auto name = markup::ToolName(absl::string_view(buffer_).substr(element_));
    if (name) {
      StartCall(*name, sink);
      delivered_ = buffer_.size();
    }
  } else if (in_markup) {
    SkipClosingBracket();
  } else if (state_ == State::kEnded ||
             !IsCutMarkup(absl::string_view(buffer_).substr(delivered_))) {
    EmitText(buffer_.size(), sink);
  }
  end.incomplete = in_markup || delivered_ < buffer_.size();
  if (call_open_) {
    end.call = calls_ - 1;
    CloseArguments(sink);
  }
  if (!turn_marker.empty()) EmitMalformed(kOtherTurn, turn_marker, sink);
  end.text = absl::string_view(buffer_).substr(delivered_);
  sink(end);
  Reset();
}

void StreamingParser::Advance(Sink sink) {
  while (trial_ ? StepOnTrial(sink) : Step(sink)) {
  }
  const size_t done = trial_ ? trial_->begin : delivered_;
  buffer_.erase(0, done);
  element_ = std::max(element_, done) - done;
  scan_ -= done;
  delivered_ -= done;
  if (trial_) {
    trial_->begin = 0;
    trial_->think_scan -= done;
  }
}

bool StreamingParser::Step(Sink sink) {
  switch (state_) {
    case State::kReasoning:
    case State::kContent:
    case State::kEnded:
      return ScanText(sink);
    case State::kBetweenCalls:
      return ReadBetweenCalls(sink);
    case State::kBeforeToolName:
      return ReadBeforeToolName(sink);
    case State::kToolName:
      return ReadToolName(sink);
    case State::kBeforeKey:
      return ReadBeforeKey(sink);
    case State::kKey:
      return ReadKey(sink);
    case State::kStringValue:
      return ReadStringValue(sink);
    case State::kHeldValue:
      return ReadHeldValue(sink);
    case State::kAfterValue:
      return ReadAfterValue(sink);
    case State::kAfterCalls:
      return ReadAfterCalls();
  }
  return false;
}

bool StreamingParser::ScanText(Sink sink) {
  const MarkerSet& markers = options_.turn_markers ? kMarkersAndTurns : kMarkers;
  const MarkerSet::Hit hit = markers.Find(buffer_, scan_);
  EmitText(hit.position, sink);
  scan_ = hit.position;
  if (hit.match != Match::kWhole) return false;
  if (absl::StrContains(hit.marker, markup::kDsml)) return ScanMarkup(hit, sink);
  if (hit.marker == markup::kEndOfSentence && !stopped_) {
    stopped_ = true;
    text_complaint_ = "text after the end";
    return Enter(State::kEnded, hit.end());
  }
  if (hit.marker == markup::kThinkEnd && state_ == State::kReasoning) {
    line_start_ = true;
    return Enter(State::kContent, hit.end());
  }
  if (IsTurnMarker(hit.marker) && state_ != State::kEnded) {
    EmitMalformed(kOtherTurn, hit.marker, sink);
    text_complaint_ = "text after the end";
    return Enter(State::kEnded, hit.end());
  }
  EmitMalformed("a control marker out of place", hit.marker, sink);
  return Enter(state_, hit.end());
}

bool StreamingParser::ScanMarkup(const MarkerSet::Hit& hit, Sink sink) {
  const bool after_line_breaks =
      hit.marker == kOpeningAfterText || hit.marker == kDoubledOpeningAfterText;
  const bool opens = hit.marker == markup::kOpening || hit.marker == kDoubledOpening;
  if (state_ != State::kEnded && (after_line_breaks || opens)) {
    markup_ = IsDoubled(hit.marker) ? &kDoubledBars : &kSingleBars;
    const MarkerSet::Hit next = kCallsOrInvoke.At(buffer_, hit.end());
    if (next.match == Match::kPartial) return false;
    if (next.marker == kCalls) {
      return state_ == State::kContent ? EnterCalls(true) : BeginTrial(true);
    }
    if (next.marker == kInvoke && (after_line_breaks || line_start_)) return BeginTrial(false);
  }
  // The line breaks are text as any.
  if (after_line_breaks) EmitText(hit.position + 2, sink);
  ReportMarkup(sink);
  return Enter(state_, hit.end(), /*keep=*/true);
}

bool StreamingParser::EnterCalls(bool wrapped) {
  wrapped_ = wrapped;
  const size_t marker = delivered_ + (buffer_[delivered_] == '\n' ? 2 : 0);
  return wrapped ? Enter(State::kBetweenCalls, marker + markup_->calls_start.size() - 1, true)
                 : Enter(State::kBeforeToolName, marker + markup_->invoke.size(), true);
}

bool StreamingParser::LeaveCalls() {
  text_complaint_ = "text after the tool calls";
  line_start_ = true;
  const bool ends_line = buffer_.size() > element_ + 1 && buffer_[element_ + 1] == '\n';
  return Enter(State::kContent, element_ + (ends_line ? 2 : 1));
}

bool StreamingParser::BeginTrial(bool wrapped) {
  trial_ = Trial{.begin = delivered_,
                 .think_scan = delivered_,
                 .from = state_,
                 .calls = calls_,
                 .markup_reported = markup_reported_,
                 .decision = std::nullopt};
  return EnterCalls(wrapped);
}

bool StreamingParser::StepOnTrial(Sink sink) {
  const bool stepped = Step([](const ParserEvent&) {});
  if (stepped && !trial_->decision) return true;
  Trial::Decision decision = trial_->decision.value_or(Trial::Decision{true, buffer_.size()});
  const bool too_long = decision.position - trial_->begin > kMaxHeldBytes;
  if (too_long) decision = {true, trial_->begin + kMaxHeldBytes};
  if (trial_->from == State::kReasoning) {
    const MarkerSet::Hit hit =
        kThinkEnd.Find(absl::string_view(buffer_).substr(0, decision.position), trial_->think_scan);
    if (hit.match == Match::kWhole) return RejectCalls(hit.position, sink);
    trial_->think_scan = hit.position;
  }
  if (!trial_->decision && !too_long) return false;
  return decision.calls ? AcceptCalls() : RejectCalls(decision.position, sink);
}

bool StreamingParser::Decide(bool calls, size_t position) {
  trial_->decision = {calls, position};
  return true;
}

bool StreamingParser::AcceptCalls() {
  const bool wrapped = wrapped_;
  delivered_ = trial_->begin;
  ForgetCall();
  calls_ = trial_->calls;
  text_complaint_ = {};
  trial_.reset();
  return EnterCalls(wrapped);
}

bool StreamingParser::RejectCalls(size_t resume, Sink sink) {
  state_ = trial_->from;
  delivered_ = trial_->begin;
  ForgetCall();
  calls_ = trial_->calls;
  markup_reported_ = trial_->markup_reported;
  trial_.reset();
  if (buffer_[delivered_] == '\n') EmitText(delivered_ + 2, sink);
  ReportMarkup(sink);
  EmitText(resume, sink);
  return Enter(state_, resume);
}

void StreamingParser::ForgetCall() {
  call_open_ = value_open_ = value_repaired_ = call_repaired_ = false;
  keys_.clear();
}

bool StreamingParser::ReadBetweenCalls(Sink sink) {
  const MarkerSet::Hit hit = markup_->after_call.At(buffer_, element_);
  if (hit.match == Match::kPartial) return false;
  if (hit.marker == markup_->next_invoke || hit.marker == markup_->same_line_invoke) {
    if (delivered_ == element_) delivered_ = hit.end() - markup_->invoke.size();
    return Enter(State::kBeforeToolName, hit.end(), /*keep=*/true);
  }
  if (hit.marker == markup_->next_calls_end || hit.marker == markup_->same_line_calls_end) {
    if (trial_ && trial_->from == State::kContent) return Decide(true, hit.end());
    if (trial_) return Enter(State::kAfterCalls, hit.end());
    text_complaint_ = "text after the tool calls";
    line_start_ = true;
    return Enter(State::kContent, hit.end());
  }
  if (!wrapped_ && buffer_[element_] == '>') {
    return trial_ ? Enter(State::kAfterCalls, element_ + 1) : LeaveCalls();
  }
  return BreakOff("neither a tool call nor the end of the tool calls", element_, sink);
}

bool StreamingParser::ReadAfterCalls() {
  const bool in_reasoning = trial_->from == State::kReasoning;
  if (!in_reasoning) scan_ = markup::SkipPythonSpace(buffer_, scan_);
  const MarkerSet::Hit end =
      in_reasoning ? kEndOfSentence.Find(buffer_, scan_) : kEndOfSentence.At(buffer_, scan_);
  scan_ = end.position;
  if (end.match == Match::kWhole) return Decide(true, scan_);
  if (end.match == Match::kNone && !in_reasoning) return Decide(false, scan_);
  return false;
}

bool StreamingParser::ReadBeforeToolName(Sink sink) {
  scan_ = markup::SkipPythonSpace(buffer_, scan_);
  if (const size_t limit = NameLimit(scan_)) return BreakOff("no tool name", limit, sink);
  const MarkerSet::Hit hit = kToolNameStart.At(buffer_, scan_);
  if (hit.match == Match::kPartial) return false;
  if (hit.match == Match::kNone) return BreakOff("no tool name", element_, sink);
  return Enter(State::kToolName, hit.end(), /*keep=*/true);
}

bool StreamingParser::ReadToolName(Sink sink) {
  const MarkerSet::Hit hit = markup_->after_tool_name.Find(buffer_, scan_);
  scan_ = hit.position;
  if (const size_t limit = NameLimit(scan_)) return BreakOff("tool name too long", limit, sink);
  if (hit.match != Match::kWhole) return false;
  const auto name = ToolNameIn(absl::string_view(buffer_).substr(element_, scan_ - element_));
  if (!name) {
    const bool has_end = absl::StrContains(
        absl::string_view(buffer_).substr(element_, scan_ - element_), kToolNameEnd);
    return BreakOff(has_end ? kNoParameter : "tool name without an end", hit.position, sink);
  }
  StartCall(*name, sink);
  delivered_ = hit.position;
  if (hit.marker == markup_->parameter) return Enter(State::kBeforeKey, hit.end(), /*keep=*/true);
  EndCall(sink);
  return Enter(State::kBetweenCalls, hit.end());
}

bool StreamingParser::ReadBeforeKey(Sink sink) {
  const MarkerSet::Hit hit = kKeyStart.At(buffer_, element_);
  if (hit.match == Match::kPartial) return false;
  if (hit.match == Match::kNone) return BreakOff("no parameter name", element_, sink);
  return Enter(State::kKey, hit.end(), /*keep=*/true);
}

bool StreamingParser::ReadKey(Sink sink) {
  const MarkerSet::Hit hit = markup_->after_key.Find(buffer_, scan_);
  scan_ = hit.position;
  if (const size_t limit = NameLimit(scan_)) {
    return BreakOff("parameter name too long", limit, sink);
  }
  if (hit.match != Match::kWhole) return false;
  if (hit.marker == markup_->parameter_slash) {
    return BreakOff("parameter without string=\"true|false\"", hit.position, sink);
  }
  key_.assign(buffer_, element_, hit.position - element_);
  if (keys_.contains(key_)) return BreakOff("repeated parameter", hit.position, sink);
  if (hit.marker == markup::kStringFalse) return Enter(State::kHeldValue, hit.end(), /*keep=*/true);
  scratch_.clear();
  AppendKey();
  scratch_.push_back('"');
  value_open_ = true;
  EmitArguments(scratch_, sink);
  return Enter(State::kStringValue, hit.end());
}

bool StreamingParser::ReadStringValue(Sink sink) {
  const MarkerSet::Hit hit = markup_->in_string_value.Find(buffer_, scan_);
  const bool whole =
      hit.marker == markup_->parameter_end || hit.marker == markup_->parameter_end_broken;
  const absl::string_view text = buffer_;
  const bool ends = absl::StartsWith(markup::kEndOfSentence, text.substr(hit.position, kEndSize));
  const bool goes_on = ends && hit.match == Match::kWhole && hit.end() < text.size();
  size_t end = hit.position;
  if (goes_on) {
    // The end-of-sentence marker is text of the value where more follows.
    end = hit.end();
  } else if (ends) {
    // A marker that the end of the completion cuts off is no part of the value.
    end = markup_->in_string_value.Find(text.substr(0, end), delivered_).position;
  }
  scratch_.clear();
  AppendJsonEscaped(text.substr(delivered_, end - delivered_), &scratch_);
  if (whole) scratch_.push_back('"');
  EmitArguments(scratch_, sink);
  delivered_ = end;
  scan_ = goes_on ? end : hit.position;
  if (goes_on) return true;
  if (ends || hit.match != Match::kWhole) return false;
  if (!whole) return BreakOff("parameter without an end", hit.position, sink);
  value_open_ = value_repaired_ = false;
  return Enter(State::kAfterValue, hit.end());
}

bool StreamingParser::ReadHeldValue(Sink sink) {
  const MarkerSet::Hit hit = markup_->after_value.Find(buffer_, scan_);
  scan_ = hit.position;
  const bool too_long = scan_ - element_ > kMaxValueBytes;
  if (hit.match != Match::kWhole && !too_long) return false;
  if (hit.marker == markup_->parameter_slash && !too_long) {
    return BreakOff("parameter without an end", hit.position, sink);
  }
  const absl::string_view value = absl::string_view(buffer_).substr(element_, scan_ - element_);
  scratch_.clear();
  AppendKey();
  if (!too_long && IsJson(value)) {
    absl::StrAppend(&scratch_, value);
    EmitArguments(scratch_, sink);
    return Enter(State::kAfterValue, hit.end());
  }
  scratch_.push_back('"');
  value_open_ = value_repaired_ = call_repaired_ = true;
  EmitArguments(scratch_, sink);
  delivered_ = element_;
  state_ = State::kStringValue;
  return true;
}

bool StreamingParser::ReadAfterValue(Sink sink) {
  const MarkerSet::Hit hit = markup_->after_parameter.At(buffer_, element_);
  if (hit.match == Match::kPartial) return false;
  if (hit.marker == markup_->next_parameter || hit.marker == markup_->same_line_parameter) {
    delivered_ = hit.end() - markup_->parameter.size();
    return Enter(State::kBeforeKey, hit.end(), /*keep=*/true);
  }
  if (hit.marker == markup_->next_invoke_end || hit.marker == markup_->same_line_invoke_end) {
    EndCall(sink);
    return Enter(State::kBetweenCalls, hit.end());
  }
  return BreakOff(kNoParameter, element_, sink);
}

size_t StreamingParser::NameLimit(size_t known) const {
  if (known - element_ <= kMaxNameBytes) return 0;
  size_t limit = element_ + kMaxNameBytes;
  while ((buffer_[limit] & 0xC0) == 0x80) ++limit;
  return limit;
}

void StreamingParser::EmitText(size_t end, Sink sink) {
  if (end == delivered_) return;
  ParserEvent event = {.kind = state_ == State::kReasoning ? Kind::kReasoning : Kind::kText};
  if (!text_complaint_.empty()) {
    EmitMalformed(std::exchange(text_complaint_, {}), {}, sink);
  }
  event.text = absl::string_view(buffer_).substr(delivered_, end - delivered_);
  line_start_ = event.text.back() == '\n';
  delivered_ = end;
  sink(event);
}

void StreamingParser::ReportMarkup(Sink sink) {
  if (!markup_reported_) EmitMalformed("tool markup outside of tool calls", {}, sink);
  markup_reported_ = true;
}

void StreamingParser::EmitMalformed(absl::string_view reason, absl::string_view marker, Sink sink) {
  ParserEvent event = {.kind = Kind::kMalformed};
  event.reason = reason;
  event.text = marker;
  sink(event);
}

void StreamingParser::EmitArguments(absl::string_view json, Sink sink) {
  if (json.empty()) return;
  ParserEvent event = {.kind = Kind::kToolCallArguments, .call = calls_ - 1, .text = json};
  event.repaired = value_repaired_;
  sink(event);
}

void StreamingParser::StartCall(absl::string_view name, Sink sink) {
  id_.assign(options_.id_prefix);
  absl::StrAppend(&id_, calls_);
  call_open_ = true;
  call_repaired_ = false;
  markup_reported_ = false;
  keys_.clear();
  sink({.kind = Kind::kToolCallStart, .call = calls_++, .text = name, .id = id_});
}

void StreamingParser::EndCall(Sink sink) {
  const bool repaired = call_repaired_;
  CloseArguments(sink);
  ParserEvent event = {.kind = Kind::kToolCallEnd, .call = calls_ - 1};
  event.repaired = repaired;
  sink(event);
}

void StreamingParser::CloseArguments(Sink sink) {
  const absl::string_view rest = value_open_ ? "\"}" : keys_.empty() ? "{}" : "}";
  EmitArguments(rest, sink);
  call_open_ = value_open_ = value_repaired_ = call_repaired_ = false;
}

void StreamingParser::AppendKey() {
  scratch_.append(keys_.empty() ? "{\"" : ", \"");
  AppendJsonEscaped(key_, &scratch_);
  scratch_.append("\": ");
  keys_.insert(key_);
}

bool StreamingParser::BreakOff(absl::string_view reason, size_t resume, Sink sink) {
  if (trial_) return Decide(false, std::max(resume, delivered_));
  ParserEvent event = {.kind = Kind::kMalformed};
  event.reason = reason;
  event.lost_call = state_ == State::kBeforeToolName || state_ == State::kToolName;
  if (call_open_) {
    event.call = calls_ - 1;
    CloseArguments(sink);
  }
  sink(event);
  markup_reported_ = true;
  text_complaint_ = {};
  SkipClosingBracket();
  state_ = State::kContent;
  resume = std::max(resume, delivered_);
  EmitText(resume, sink);
  return Enter(State::kContent, resume);
}

void StreamingParser::SkipClosingBracket() {
  const bool after_marker = state_ == State::kBetweenCalls || state_ == State::kAfterValue;
  if (after_marker && delivered_ == element_ && delivered_ < buffer_.size() &&
      buffer_[delivered_] == '>') {
    ++delivered_;
  }
}

bool StreamingParser::Enter(State state, size_t position, bool keep) {
  state_ = state;
  element_ = scan_ = position;
  if (!keep) delivered_ = position;
  return true;
}

}  // namespace dsv4
