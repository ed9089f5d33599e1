// SPDX-License-Identifier: Apache-2.0
#include "lib/text/streaming_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/text/json_text.h"
#include "lib/text/unicode.h"

namespace dsv4 {
namespace {

using markup::MarkerSet;
using Kind = ParserEvent::Kind;
using Match = MarkerSet::Match;

constexpr absl::string_view kCallsStartAfterText = "\n\n<｜DSML｜tool_calls>";
constexpr MarkerSet kTextMarkers = {
    markup::kThinkEnd, markup::kThinkStart, markup::kEndOfSentence, markup::kBeginOfSentence,
    markup::kDsml,     markup::kCallsStart, kCallsStartAfterText};

// Bytes of a Feed that are worked off at a time.
constexpr size_t kSliceBytes = 64 << 10;

// After a call, and after a value: what ends the line before, and what may come then.
constexpr absl::string_view kNextInvoke = ">\n<｜DSML｜invoke";
constexpr absl::string_view kNextCallsEnd = ">\n</｜DSML｜tool_calls>";
constexpr absl::string_view kNextParameter = ">\n<｜DSML｜parameter";
constexpr absl::string_view kNextInvokeEnd = ">\n</｜DSML｜invoke";
constexpr MarkerSet kAfterCall = {kNextInvoke, kNextCallsEnd};
constexpr MarkerSet kAfterParameter = {kNextParameter, kNextInvokeEnd};
constexpr MarkerSet kInStringValue = {markup::kParameterEnd, markup::kParameterEndBroken,
                                      markup::kParameterSlash, markup::kEndOfSentence};
constexpr MarkerSet kToolNameStart = {markup::kToolNameStart};
constexpr MarkerSet kKeyStart = {markup::kKeyStart};

}  // namespace

StreamingParser::StreamingParser(Options options) : options_(std::move(options)) { Reset(); }

void StreamingParser::Reset() {
  state_ = options_.mode == ThinkingMode::kThinking ? State::kReasoning : State::kContent;
  buffer_.clear();
  delivered_ = element_ = scan_ = 0;
  cut_.clear();
  calls_ = 0;
  call_open_ = value_open_ = value_repaired_ = call_repaired_ = false;
  keys_.clear();
  markup_reported_ = false;
  text_complaint_ = {};
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

void StreamingParser::Finish(Sink sink) {
  if (!cut_.empty()) absl::StrAppend(&buffer_, kReplacementCharacter);
  Advance(sink);
  ParserEvent end = {.kind = Kind::kEnd};
  const bool in_markup = state_ >= State::kBetweenCalls && state_ < State::kEnded;
  end.stopped = state_ == State::kEnded;
  if (in_markup && absl::EndsWith(buffer_, markup::kEndOfSentence)) {
    buffer_.resize(buffer_.size() - markup::kEndOfSentence.size());
    end.stopped = true;
  }
  const absl::string_view held = absl::string_view(buffer_).substr(delivered_);
  // The marker of the calls is one even without its last byte when nothing follows.
  constexpr absl::string_view kCutCallsStart =
      kCallsStartAfterText.substr(0, kCallsStartAfterText.size() - 1);
  if (state_ == State::kStringValue) {
    scratch_.clear();
    AppendJsonEscaped(held, &scratch_);
    delivered_ = buffer_.size();
    EmitArguments(scratch_, sink);
  } else if (state_ == State::kToolName) {
    const auto name = markup::ToolName(absl::string_view(buffer_).substr(element_));
    if (name) {
      StartCall(*name, sink);
      delivered_ = buffer_.size();
    }
  } else if (in_markup) {
    SkipClosingBracket();
  } else if (end.stopped || held != kCutCallsStart) {
    EmitText(buffer_.size(), sink);
  }
  end.unfinished = in_markup || delivered_ < buffer_.size();
  if (call_open_) {
    end.call = calls_ - 1;
    CloseArguments(sink);
  }
  end.text = absl::string_view(buffer_).substr(delivered_);
  sink(end);
  Reset();
}

void StreamingParser::Advance(Sink sink) {
  while (Step(sink)) {
  }
  buffer_.erase(0, delivered_);
  element_ = std::max(element_, delivered_) - delivered_;
  scan_ -= delivered_;
  delivered_ = 0;
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
  }
  return false;
}

bool StreamingParser::ScanText(Sink sink) {
  const MarkerSet::Hit hit = kTextMarkers.Find(buffer_, scan_);
  EmitText(hit.position, sink);
  if (hit.match != Match::kWhole) {
    scan_ = hit.position;
    return false;
  }
  const bool ended = state_ == State::kEnded;
  if (hit.marker == markup::kDsml) {
    if (!markup_reported_) EmitMalformed("tool markup outside of tool calls", {}, sink);
    markup_reported_ = true;
    return Enter(state_, hit.end(), /*keep=*/true);
  }
  if (hit.marker == markup::kCallsStart || hit.marker == kCallsStartAfterText) {
    if (ended) return Enter(state_, hit.end(), /*keep=*/true);
    return Enter(State::kBetweenCalls, hit.end() - 1, /*keep=*/true);
  }
  if (hit.marker == markup::kEndOfSentence && !ended) {
    text_complaint_ = "text after the end";
    return Enter(State::kEnded, hit.end());
  }
  if (hit.marker == markup::kThinkEnd && state_ == State::kReasoning) {
    return Enter(State::kContent, hit.end());
  }
  EmitMalformed("a control marker out of place", hit.marker, sink);
  return Enter(state_, hit.end());
}

bool StreamingParser::ReadBetweenCalls(Sink sink) {
  const MarkerSet::Hit hit = kAfterCall.At(buffer_, element_);
  if (hit.match == Match::kPartial) return false;
  if (hit.marker == kNextInvoke) {
    if (delivered_ == element_) delivered_ = hit.end() - markup::kInvoke.size();
    return Enter(State::kBeforeToolName, hit.end(), /*keep=*/true);
  }
  if (hit.marker == kNextCallsEnd) {
    text_complaint_ = "text after the tool calls";
    return Enter(State::kContent, hit.end());
  }
  return BreakOff("neither a tool call nor the end of the tool calls", element_, sink);
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
  const MarkerSet::Hit hit = markup::kAfterToolName.Find(buffer_, scan_);
  scan_ = hit.position;
  if (const size_t limit = NameLimit(scan_)) return BreakOff("tool name too long", limit, sink);
  if (hit.match != Match::kWhole) return false;
  const auto name = markup::ToolName(absl::string_view(buffer_).substr(element_, scan_ - element_));
  if (!name) return BreakOff("tool name without an end", hit.position, sink);
  StartCall(*name, sink);
  delivered_ = hit.position;
  if (hit.marker == markup::kParameter) return Enter(State::kBeforeKey, hit.end(), /*keep=*/true);
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
  const MarkerSet::Hit hit = markup::kAfterKey.Find(buffer_, scan_);
  scan_ = hit.position;
  if (const size_t limit = NameLimit(scan_)) {
    return BreakOff("parameter name too long", limit, sink);
  }
  if (hit.match != Match::kWhole) return false;
  if (hit.marker == markup::kParameterSlash) {
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
  const MarkerSet::Hit hit = kInStringValue.Find(buffer_, scan_);
  const bool whole =
      hit.marker == markup::kParameterEnd || hit.marker == markup::kParameterEndBroken;
  scratch_.clear();
  AppendJsonEscaped(absl::string_view(buffer_).substr(delivered_, hit.position - delivered_),
                    &scratch_);
  if (whole) scratch_.push_back('"');
  EmitArguments(scratch_, sink);
  delivered_ = scan_ = hit.position;
  if (hit.match != Match::kWhole) return false;
  if (hit.marker == markup::kEndOfSentence) {
    // The end of the completion, unless more follows: it is text of the value then.
    if (hit.end() == buffer_.size()) return false;
    scan_ = hit.end();
    return true;
  }
  if (!whole) return BreakOff("parameter without an end", hit.position, sink);
  value_open_ = value_repaired_ = false;
  return Enter(State::kAfterValue, hit.end());
}

bool StreamingParser::ReadHeldValue(Sink sink) {
  const MarkerSet::Hit hit = markup::kAfterValue.Find(buffer_, scan_);
  scan_ = hit.position;
  const bool too_long = scan_ - element_ > kMaxValueBytes;
  if (hit.match != Match::kWhole && !too_long) return false;
  if (hit.marker == markup::kParameterSlash && !too_long) {
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
  const MarkerSet::Hit hit = kAfterParameter.At(buffer_, element_);
  if (hit.match == Match::kPartial) return false;
  if (hit.marker == kNextParameter) {
    delivered_ = hit.end() - markup::kParameter.size();
    return Enter(State::kBeforeKey, hit.end(), /*keep=*/true);
  }
  if (hit.marker == kNextInvokeEnd) {
    EndCall(sink);
    return Enter(State::kBetweenCalls, hit.end());
  }
  return BreakOff("neither a parameter nor the end of the call", element_, sink);
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
  delivered_ = end;
  sink(event);
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
  ParserEvent event = {.kind = Kind::kMalformed};
  event.reason = reason;
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
