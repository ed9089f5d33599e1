// SPDX-License-Identifier: Apache-2.0
// A conversation on a session: sets the session's tokens to those of a list of messages. Assistant
// turns that it generated keep the tokens that were sampled; the chat encoder (lib/text) renders
// all other messages. So the session reuses the rows of everything before the first change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/session/chat_tokens.h"
#include "lib/session/session.h"
#include "lib/text/chat_message.h"
#include "lib/text/streaming_parser.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// Messages are numbered from the beginning of the conversation. An assistant turn counts as a
// message from its first token on. One thread at a time.
class Conversation {
 public:
  using Sink = StreamingParser::Sink;

  // A conversation without messages. It does not change `session`, which must outlive this object.
  // Errors: NotFound for a model without a tokenizer.
  static absl::StatusOr<std::unique_ptr<Conversation>> Create(Session* session);

  // The same conversation, an open turn included, on `session`, a fork of this one's.
  std::unique_ptr<Conversation> Fork(Session* session) const;

  // Sets the messages to `messages`, all of the conversation, and the session's tokens to theirs.
  // Computes nothing. An assistant's message that equals the one of this object at its place, after
  // equal messages, keeps the tokens that were sampled; ids of tool calls may differ. First ends a
  // turn that is being generated, as EndTurn does; the turn stays ended if the call fails. A failed
  // call changes nothing else. Errors: those of RenderChat and Session::Sync.
  absl::StatusOr<SyncResult> Sync(std::vector<ChatMessage> messages, const ChatOptions& options);

  // Calls `load`, which loads a saved session into this one, and renders the messages again. They
  // reuse the longest common prefix with the loaded tokens; assistant turns count as sampled. Ends
  // a turn that is being generated. Errors, which change nothing: those of `load` and Sync.
  absl::Status Load(absl::FunctionRef<absl::Status(const Session::BeforeLoad& before)> load);

  // Computes the pending tokens and samples one token of the assistant's turn.
  // - sink: receives the events that the token completes; with the turn's last token also held-back
  //   text, then kEnd.
  // - A control token that begins another turn ends this one (kMalformed, finish kStop) and is not
  //   part of it.
  // - A last message of the assistant with wo_eos is the beginning of the turn. The events are
  // those
  //   of the rest, and the message becomes the whole turn.
  // - The id of a tool call is "call_M_N": call N, of message M or, if the messages have such ids
  //   with that or a higher number, of the next number.
  // Errors: those of Session::Step, after which the turn can continue; InvalidArgument if the last
  // message is not followed by an assistant turn, or if the session was changed by other calls. If
  // memory runs out for the turn's text, the next call fails in the same way.
  absl::StatusOr<StepResult> Step(Sink sink);
  // The parts of Step, for Session::StepAll: a check before the step, then the result of the
  // session's step, which may have no token.
  absl::Status CheckTurn() const;
  absl::StatusOr<StepResult> TakeStep(absl::StatusOr<StepResult> given, Sink sink);

  // Ends the turn that is being generated, if any: `sink` receives held-back text, then kEnd. The
  // message keeps what was delivered, except an incomplete tool call. The next prompt closes open
  // reasoning.
  void EndTurn(Sink sink);

  // The chat encoder detected from the model folder, or the preview's.
  ChatEncoder model_encoder() const {
    return session_->engine()->text().ChatEncoderOr(ChatEncoder::kPreview);
  }
  // Those of the last Sync, and the turn that ended since.
  absl::Span<const ChatMessage> messages() const { return messages_; }
  // The turn since the last Sync so far, with its complete tool calls. Null before its first token.
  const ChatMessage* reply() const;

 private:
  struct OpenTurn {
    StreamingParser parser;
    ChatMessage reply;
    std::vector<int32_t> ids{};
    std::string text{};  // that the session gave for `ids`
    ToolCall call{};     // the incomplete call; moves to the reply when it is complete
    bool reasons = false;
    bool incomplete = false;  // ends within tool markup
    bool cut_call = false;    // the last call ended incomplete
  };
  Conversation(Session* session, const Tokenizer* tokenizer, ChatTokens chat_tokens);
  Conversation(const Conversation&) = default;
  absl::StatusOr<SyncResult> SyncTo(absl::Span<const int32_t> tokens);
  void BeginTurn(bool reasons);
  void Record(const ParserEvent& event);
  void Feed(absl::string_view text, Sink sink);
  void FeedHeld(Sink sink);
  // Processes a token of Step.
  void Take(StepResult* step, Sink sink);
  // Ends the turn. `end`: the control token with which the model ended it, if any. Returns whether
  // the turn calls tools.
  bool CloseTurn(std::optional<int32_t> end, Sink sink);
  std::optional<SampledTurn> AsSampled() const;
  // Shortens `ids` to spell `text`. False if `text` is not a prefix of what they spell.
  bool CutTo(absl::string_view text, std::vector<int32_t>* ids) const;

  Session* session_;
  const Tokenizer* tokenizer_;
  const ChatTokens chat_tokens_;
  ChatOptions options_;
  std::vector<ChatMessage> messages_;
  // One for each message; nullopt for one that is rendered from its texts.
  std::vector<std::optional<SampledTurn>> sampled_;
  size_t synced_ = 0;  // messages of the last Sync; a turn that ended since follows them
  std::optional<OpenTurn> turn_;
  uint64_t generation_ = 0;  // of the session, as this object left it
};

}  // namespace dsv4
