// SPDX-License-Identifier: Apache-2.0
// A streaming parser of completions: delivers reasoning, content and tool calls as events, however
// the completion is split into pieces. Completions that the published parser accepts
// (completion_parser.h) give the same message. Others are delivered too, with an event that says
// what is wrong, unless only </think>, line breaks before tool calls or the markers around them are
// missing.
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

// Views live until the sink returns. Texts are whole UTF-8 characters.
struct ParserEvent {
  enum class Kind {
    kReasoning,          // text
    kText,               // text: content of the message
    kToolCallStart,      // call, id, text: the tool's name
    kToolCallArguments,  // call, text, repaired
    kToolCallEnd,        // call, repaired: the call is complete
    kMalformed,          // reason; call and text as below
    kEnd,                // incomplete, stopped; call and text as below
  };
  Kind kind;

  // The number of the tool call in the completion, from 0. In kMalformed and kEnd: the call that
  // ends here incomplete, without kToolCallEnd; -1 if there is none.
  int32_t call = -1;

  // kToolCallArguments: a piece of JSON. The joined pieces of a call are one JSON object, also if
  // the call stays incomplete. kMalformed: an unexpected control marker, which no other event
  // delivers. Empty for malformed tool markup, which follows as text (inside the reasoning: as
  // reasoning). kEnd: tool markup that the end of the completion cut off. No other event delivers
  // it.
  absl::string_view text = {};

  absl::string_view id = {};  // the options' id_prefix and the number of the call

  // The piece belongs to (kToolCallEnd: the call has) a value that the markup marks as JSON and
  // that is not JSON, or is longer than StreamingParser::kMaxValueBytes. It is delivered as a JSON
  // string.
  bool repaired = false;

  absl::string_view reason = {};  // kMalformed: what is wrong, in a few words; static

  bool lost_call = false;   // kMalformed: a call ends before it has a number
  bool incomplete = false;  // kEnd: the completion ends inside tool markup
  bool stopped = false;     // kEnd: the end-of-sentence marker was seen
};

// Call Feed with the bytes after the prompt, including the texts of control tokens, then End.
// Rules:
// - `</think>` ends the reasoning. Tool calls in the reasoning end it too, unless a `</think>`
//   follows: then they count as quoted text and are reasoning. They are held until this is decided,
//   by `</think>`, the end, malformed markup or kMaxHeldBytes.
// - Two line breaks before `<｜DSML｜tool_calls>` belong to the marker. If the marker is missing,
//   calls at the beginning of a line are calls if `</｜DSML｜tool_calls>` or the end follows them,
//   otherwise text. They are held in the same way.
// - The bars of all markers of the calls may be doubled, as in `<｜｜DSML｜｜tool_calls>`.
// - Bytes that may begin a marker are held until this is decided. A marker that the end cuts off is
//   the text of kEnd, not content or part of a value.
// - Tool markup is read like the published parser does. At an error the call ends incomplete,
//   kMalformed gives the reason, and the markup from there on is content. Tool markup is text only
//   after a kMalformed.
// - An unexpected control marker (such as `<think>` in content) is the text of a kMalformed. A
//   marker that begins another turn also ends this one. Content after tool calls or after the end
//   is preceded by a kMalformed.
// - Bytes that are not UTF-8 become U+FFFD.
//
// Time is linear in the bytes. Buffers grow to the held bytes and stay below 3 MiB, however much is
// fed at once. One thread at a time.
class StreamingParser {
 public:
  struct Options {
    ThinkingMode mode = ThinkingMode::kThinking;  // the mode that the prompt was rendered in
    std::string id_prefix = "call_";
    // Whether `<｜User｜>` and similar markers in the bytes are control tokens. False: they are
    // text; the caller knows the tokens and reports control tokens through End.
    bool turn_markers = true;
  };
  using Sink = absl::FunctionRef<void(const ParserEvent&)>;

  // A longer value that is not a string is delivered as a JSON string, piece by piece.
  static constexpr size_t kMaxValueBytes = 1 << 20;
  // A longer name of a tool or a parameter is malformed.
  static constexpr size_t kMaxNameBytes = 64 << 10;
  // The most bytes that are held outside of tool markup, and anywhere.
  static constexpr size_t kMaxHeldTextBytes = 32;
  static constexpr size_t kMaxHeldBytes = kMaxValueBytes + kMaxNameBytes + 256;

  explicit StreamingParser(Options options);

  // Calls `sink` for each event that `bytes` complete. `sink` must not use the parser.
  void Feed(absl::string_view bytes, Sink sink);

  // Delivers what was held, then kEnd. The parser is then ready for another completion.
  // `turn_marker`: a control token that was not fed and ended the turn early; kMalformed reports
  // it.
  void End(Sink sink, absl::string_view turn_marker = {});

 private:
  struct CallMarkup;
  static const CallMarkup kSingleBars, kDoubledBars;
  enum class State {
    kReasoning,
    kContent,
    kBetweenCalls,    // after the start of the calls or the end of one
    kBeforeToolName,  // after kInvoke: white space
    kToolName,
    kBeforeKey,  // after kParameter
    kKey,
    kStringValue,
    kHeldValue,  // of a parameter that is not a string
    kAfterValue,
    kAfterCalls,  // on trial: after all calls
    kEnded,       // after the end-of-sentence marker, or one of another turn
  };

  void Reset();
  // Parses as much of the buffer as can be decided.
  void Advance(Sink sink);
  // One step of the grammar. False if the buffer does not decide the next one.
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
  // Skips the bracket that closes the marker before malformed markup. The marker itself was valid.
  void SkipClosingBracket();
  // Continues at `position` in `state`. The text before it is delivered unless kept.
  bool Enter(State state, size_t position, bool keep = false);

  Options options_;
  State state_;

  std::string buffer_;   // whole characters; positions below are into it
  size_t delivered_;     // the bytes before it were delivered
  size_t element_;       // start of what state_ reads
  size_t scan_;          // no marker of state_ begins before it
  bool line_start_;      // the delivered part of this text is empty or ends a line
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
  absl::string_view text_complaint_;         // to be reported before content, if any comes
  const CallMarkup* markup_ = &kSingleBars;  // of the calls being read
  bool wrapped_;                             // the calls being read began with their marker
  bool stopped_;                             // the end-of-sentence marker was seen

  struct Trial {
    size_t begin;       // of the calls
    size_t think_scan;  // no `</think>` begins before
    State from;         // kReasoning or kContent
    int32_t calls;      // before them
    bool markup_reported;
    struct Decision {
      bool calls;
      size_t position;  // the end of the bytes that it classifies
    };
    std::optional<Decision> decision;
  };
  std::optional<Trial> trial_;
};

}  // namespace dsv4
