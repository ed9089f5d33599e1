// SPDX-License-Identifier: Apache-2.0
// A completion taken apart while it streams: reasoning, content and tool calls as events, whatever
// the pieces it arrives in. What the published parser accepts (completion_parser.h) gives the same
// message here; what it refuses is delivered all the same, with an event that says what is wrong,
// unless only </think>, the line breaks before tool calls or the markers around them are missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/text/chat_message.h"
#include "lib/text/completion_markup.h"

namespace dsv4 {

// Views live during the call that delivers the event. Texts are UTF-8 of whole characters.
struct ParserEvent {
  enum class Kind {
    kReasoning,          // text
    kText,               // text: content of the message
    kToolCallStart,      // call, id, text: the tool's name
    kToolCallArguments,  // call, text, repaired
    kToolCallEnd,        // call, repaired: the call is whole
    kMalformed,          // reason; call and text as below
    kEnd,                // incomplete, stopped; call and text as below
  };
  Kind kind;

  // Number of the tool call within the completion, from 0. With kMalformed and kEnd: the call that
  // breaks off here and gets no kToolCallEnd; -1 when there is none.
  int32_t call = -1;

  // kToolCallArguments: a piece of JSON. The pieces of one call, joined, are one JSON object,
  // whatever becomes of the call; those of a complete call are its arguments.
  // kMalformed: a control marker that had no place there and is not delivered otherwise. Empty for
  // tool markup, which follows as text (in the reasoning, as reasoning).
  // kEnd: tool markup that the end cut off and that is not delivered otherwise.
  absl::string_view text = {};

  absl::string_view id = {};  // the options' id_prefix and the number of the call

  // The piece belongs to (kToolCallEnd: the call has) a value that was announced as JSON and is
  // none, or is longer than StreamingParser::kMaxValueBytes: it is sent as a JSON string.
  bool repaired = false;

  absl::string_view reason = {};  // kMalformed: what is wrong, in a few words; static

  bool lost_call = false;   // kMalformed: a call breaks off before it has a number
  bool incomplete = false;  // kEnd: the completion ends within tool markup
  bool stopped = false;     // kEnd: the end-of-sentence marker was seen
};

// Feed the bytes that follow the prompt, the texts of control tokens among them, then End. The
// rules:
// - `</think>` ends the reasoning. Tool calls in the reasoning end it as well, unless a `</think>`
//   follows: then they were a quotation, and are reasoning. They are held until that is decided: by
//   `</think>`, by the end, by markup that is none, or by kMaxHeldBytes.
// - Two line breaks before `<｜DSML｜tool_calls>` belong to it. Where that marker is missing, calls
//   that begin a line are calls if `</｜DSML｜tool_calls>` or the end follows them, and else text;
//   they are held alike.
// - Bytes that may begin a marker are held until that is decided, then delivered or acted upon. A
//   marker that the end cuts off is no text, and no part of a value, but the text of kEnd.
// - Tool markup is read as the published parser reads it. Where it is malformed, the call ends
//   incomplete, kMalformed says so, and the markup from there on is content. Tool markup is text
//   only after a kMalformed.
// - A control marker without a place (`<think>`, say, in content) is an event kMalformed that
//   carries it. One that begins another turn also ends this one. Content after tool calls or after
//   the end comes after a kMalformed.
// - Bytes that are not UTF-8 become U+FFFD.
//
// Time is linear in the bytes. Nothing is allocated per byte; buffers grow to what is held and stay
// below 3 MiB, whatever is fed at once. One thread at a time.
class StreamingParser {
 public:
  struct Options {
    ThinkingMode mode = ThinkingMode::kThinking;  // as the prompt was rendered
    std::string id_prefix = "call_";
    // Whether `<｜User｜>` and the like in the bytes are control tokens. False: they are text, and
    // who feeds sees the tokens (End).
    bool turn_markers = true;
  };
  using Sink = absl::FunctionRef<void(const ParserEvent&)>;

  // A longer value that is no string is sent as a JSON string while it arrives.
  static constexpr size_t kMaxValueBytes = 1 << 20;
  // A longer name of a tool or a parameter is malformed.
  static constexpr size_t kMaxNameBytes = 64 << 10;
  // Most bytes held outside of tool markup, and anywhere.
  static constexpr size_t kMaxHeldTextBytes = 32;
  static constexpr size_t kMaxHeldBytes = kMaxValueBytes + kMaxNameBytes + 256;

  explicit StreamingParser(Options options);

  // Delivers to `sink` what `bytes` decide. `sink` must not use the parser.
  void Feed(absl::string_view bytes, Sink sink);

  // Delivers what is held and kEnd. The parser is then as new. `turn_marker`: the control token,
  // not fed, that broke the turn off; kMalformed reports it.
  void End(Sink sink, absl::string_view turn_marker = {});

 private:
  enum class State {
    kReasoning,
    kContent,
    kBetweenCalls,    // after the start of the calls or the end of one
    kBeforeToolName,  // after kInvoke: white space
    kToolName,
    kBeforeKey,  // after kParameter
    kKey,
    kStringValue,
    kHeldValue,  // of a parameter that is no string
    kAfterValue,
    kAfterCalls,  // on trial: after all calls
    kEnded,       // after the end-of-sentence marker, or one of another turn
  };

  void Reset();
  // Goes as far as the buffer decides.
  void Advance(Sink sink);
  // One step of the grammar; false when the buffer decides nothing more.
  bool Step(Sink sink);
  bool ScanText(Sink sink);
  bool ScanMarkup(const markup::MarkerSet::Hit& hit, Sink sink);
  bool ReadBetweenCalls(Sink sink);
  bool ReadBeforeToolName(Sink sink);
  bool ReadToolName(Sink sink);
  bool ReadBeforeKey(Sink sink);
  bool ReadKey(Sink sink);
  bool ReadStringValue(Sink sink);
  bool ReadHeldValue(Sink sink);
  bool ReadAfterValue(Sink sink);
  bool ReadAfterCalls();
  // The end of the name that begins at `element_` and has no marker in its bytes up to `known`:
  // kMaxNameBytes later, at a character's start; 0 if `known` is not beyond that.
  size_t NameLimit(size_t known) const;

  // Goes to the calls that begin at delivered_.
  bool EnterCalls(bool wrapped);
  // Continues behind calls without the marker that ends them.
  bool LeaveCalls();

  // Calls whose markup may turn out to be a quotation are read twice: on trial, where no event is
  // delivered, and once more when they are found to be calls.
  bool BeginTrial(bool wrapped);
  bool StepOnTrial(Sink sink);
  bool Decide(bool calls, size_t position);
  bool AcceptCalls();
  bool RejectCalls(size_t resume, Sink sink);
  void ForgetCall();

  void EmitText(size_t end, Sink sink);
  void ReportMarkup(Sink sink);
  void EmitMalformed(absl::string_view reason, absl::string_view marker, Sink sink);
  void EmitArguments(absl::string_view json, Sink sink);
  void StartCall(absl::string_view name, Sink sink);
  void EndCall(Sink sink);
  // Completes the JSON of the open call, and forgets the call.
  void CloseArguments(Sink sink);
  // Appends to scratch_ what precedes the value of key_: separator, key and colon.
  void AppendKey();
  // The tool markup held since `delivered_` is malformed: it is content up to `resume`, and the
  // rest is read as content.
  bool BreakOff(absl::string_view reason, size_t resume, Sink sink);
  // Of the markup that is given up, the bracket that closes the marker before it is none: that
  // marker was acted upon.
  void SkipClosingBracket();
  // Continues at `position` in `state`. The text before it is delivered unless kept.
  bool Enter(State state, size_t position, bool keep = false);

  Options options_;
  State state_;

  std::string buffer_;   // whole characters; positions below are into it
  size_t delivered_;     // what lies before has become events
  size_t element_;       // start of what state_ reads
  size_t scan_;          // no marker of state_ begins before
  bool line_start_;      // what is delivered of this text is empty or ends a line
  std::string cut_;      // the start of a character that the last Feed's bytes end with
  std::string scratch_;  // the event being written
  std::string key_;      // of the value being read
  std::string id_;

  int32_t calls_;    // started so far
  bool call_open_;   // number calls_ - 1
  bool value_open_;  // within a string of its arguments
  bool value_repaired_;
  bool call_repaired_;
  StringSet keys_;        // of the open call
  bool markup_reported_;  // tool markup out of place has been reported since the last call
  absl::string_view text_complaint_;  // to be reported before content, if any comes
  bool wrapped_;                      // the calls being read began with their marker
  bool stopped_;                      // the end-of-sentence marker was seen

  struct Trial {
    size_t begin;       // of the calls
    size_t think_scan;  // no `</think>` begins before
    State from;         // kReasoning or kContent
    int32_t calls;      // before them
    bool markup_reported;
    struct Decision {
      bool calls;
      size_t position;  // up to which it says what the bytes are
    };
    std::optional<Decision> decision;
  };
  std::optional<Trial> trial_;
};

}  // namespace dsv4
