// SPDX-License-Identifier: Apache-2.0
// A chat on a session: the messages so far, and the timeline that they make. The assistant's turns
// stay the tokens that were sampled, everything else is what the chat encoder renders, so that the
// session keeps the rows of all that a new turn does not change. How messages are written is
// lib/text's, what is computed and what is kept the session's.
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
#include "lib/runtime/chat_tokens.h"
#include "lib/runtime/session.h"
#include "lib/text/chat_message.h"
#include "lib/text/streaming_parser.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// Messages are numbered from the beginning of the conversation; a turn of the assistant is one from
// its first token on. One thread at a time.
class Conversation {
 public:
  using Sink = StreamingParser::Sink;

  // Makes `messages` (perhaps none) the timeline of `session`, which must outlive this object and
  // not be synced or stepped but through it. NotFound for a model without a tokenizer; errors as of
  // Append.
  static absl::StatusOr<std::unique_ptr<Conversation>> Open(Session* session,
                                                            std::vector<ChatMessage> messages,
                                                            const ChatOptions& options);

  // The same conversation, an open turn included, on `session`, a fork of this one's.
  std::unique_ptr<Conversation> Fork(Session* session) const;

  // Appends messages after the assistant's turn (or before it: nothing is computed yet). A turn
  // that is being generated ends as by EndTurn, also when this fails; apart from that a failed call
  // changes nothing. Errors: those of RenderChat and Session::Sync; InvalidArgument for no
  // messages.
  absl::Status Append(std::vector<ChatMessage> messages);
  // Keeps the first `count` messages alone. InvalidArgument when there are fewer. Otherwise as
  // Append.
  absl::Status Truncate(size_t count);
  // Puts `messages` in the place of the `count` messages from `first` on; either may be none. Turns
  // of the assistant that stay keep the tokens that were sampled. InvalidArgument when there are
  // fewer. Otherwise as Append.
  absl::Status Replace(size_t first, size_t count, std::vector<ChatMessage> messages);
  // How the conversation is rendered from here on, earlier turns included. Otherwise as Append.
  absl::Status SetOptions(const ChatOptions& options);

  // `load` loads the session. Of what this then holds, these messages keep what they have in common
  // with it, turns of the assistant as they were sampled included. A turn that was being generated
  // has ended. Errors of `load` and as of Append; nothing changes then.
  absl::Status Load(absl::FunctionRef<absl::Status(const Session::BeforeLoad& before)> load);

  // Computes what is pending and samples one token of the assistant's turn; `sink` gets what it
  // decides, with the last token of the turn also what is held, and kEnd. A control token that
  // begins another turn is the last one of this, and no part of it: kMalformed, finish kStop. Calls
  // of tools have the id "call_M_N": message M, call N.
  // Errors: those of Session::Step, after which the turn can continue; InvalidArgument when the
  // last message does not give the assistant its turn, or when the session was changed from
  // outside. A turn whose text finds no host memory is given up, as if the session had been
  // changed.
  absl::StatusOr<StepResult> Step(Sink sink);
  // The parts of Step, for Session::StepAll: first whether the assistant has its turn, then what
  // the session's step gave, which may be no token.
  absl::Status CheckTurn() const;
  absl::StatusOr<StepResult> TakeStep(absl::StatusOr<StepResult> given, Sink sink);

  // Ends the turn where it is, when one is being generated: `sink` gets what is held, and kEnd.
  // The message keeps everything delivered but a call that is not whole; the next prompt closes its
  // reasoning.
  void EndTurn(Sink sink);

  // The chat encoder that the model's folder shows, or the preview's.
  ChatEncoder model_encoder() const {
    return session_->engine()->text().ChatEncoderOr(ChatEncoder::kPreview);
  }
  // Not the turn being generated.
  absl::Span<const ChatMessage> messages() const { return messages_; }
  // The assistant's last turn as far as it goes, with the calls that are whole; null before the
  // first.
  const ChatMessage* reply() const;

 private:
  struct OpenTurn {
    StreamingParser parser;
    ChatMessage reply;
    std::vector<int32_t> ids{};
    std::string text{};  // that the session gave for `ids`
    ToolCall call{};     // being made; one of the reply's when it is whole
    bool reasons = false;
    bool incomplete = false;  // ends within tool markup
    bool cut_call = false;    // a call broke off
  };
  Conversation(Session* session, const Tokenizer* tokenizer, ChatTokens chat_tokens);
  Conversation(const Conversation&) = default;
  absl::Status Sync();
  absl::Status SyncTo(absl::Span<const int32_t> tokens);
  void BeginTurn(bool reasons);
  void Record(const ParserEvent& event);
  void Feed(absl::string_view text, Sink sink);
  void FeedHeld(Sink sink);
  // What Step does with a token once it is there.
  void Take(StepResult* step, Sink sink);
  // `end`: the control token with which the model ended the turn, if it did. Whether the turn calls
  // tools.
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
  std::optional<OpenTurn> turn_;
  uint64_t generation_ = 0;  // of the session, as this object left it
};

}  // namespace dsv4
