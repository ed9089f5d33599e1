// SPDX-License-Identifier: Apache-2.0
// Turns messages into a session's tokens. The chat encoder renders them, except assistant turns
// that were sampled here: these keep their tokens. conversation.h knows which turns were sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/text/chat_message.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The tokens of a sampled assistant turn.
struct SampledTurn {
  std::vector<int32_t> ids;  // without the tokens that open and end the turn
  bool reasons;              // the turn was opened with <think>
  // Index in `ids` where the content begins; nullopt if it begins inside a token.
  std::optional<size_t> content_begin;
};

class ChatTokens {
 public:
  // `tokenizer` must outlive the result. Errors: NotFound, naming a control token that the
  // tokenizer lacks.
  static absl::StatusOr<ChatTokens> Create(const Tokenizer& tokenizer);

  // Whether a prompt that ends with `id` leaves the turn to the assistant.
  bool OpensTurn(int32_t id) const { return IsTask(id) || id == think_ || id == think_end_; }
  // Whether such a turn begins with reasoning.
  bool OpensReasoning(int32_t id) const { return id == think_; }
  // Whether `id` begins another turn, of any role.
  bool BeginsOtherTurn(int32_t id) const {
    return id == user_ || id == assistant_ || id == latest_reminder_;
  }

  // Makes a turn of the sampled `ids`. Reasoning that is still open is closed.
  SampledTurn TurnOf(std::vector<int32_t> ids, bool reasons) const;

  // The prompt of `messages` as RenderChat gives it, except the turns that were sampled. `sampled`
  // has one entry for each message. A sampled turn keeps its tokens, or the tokens of its content
  // where its reasoning is dropped. nullopt, and a turn whose dropped reasoning cannot be cut out,
  // is rendered from the message. Errors: those of RenderChat.
  absl::StatusOr<std::vector<int32_t>> Render(absl::Span<const ChatMessage> messages,
                                              absl::Span<const std::optional<SampledTurn>> sampled,
                                              const ChatOptions& options) const;

  // Finds the assistant turns of `messages` in `timeline`, whose tokens are another rendering of
  // the same conversation. Returns a sampled turn for each message whose text equals the tokens
  // there, nullopt for the others. Errors: those of RenderChat.
  absl::StatusOr<std::vector<std::optional<SampledTurn>>> SampledIn(
      absl::Span<const int32_t> timeline, absl::Span<const ChatMessage> messages,
      const ChatOptions& options) const;

 private:
  // The place of an assistant turn: `begin` is its first token, `end` the token that ends it.
  struct Place {
    size_t begin, end;
    bool reasons;  // it is opened with <think>
  };
  explicit ChatTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  bool IsTask(int32_t id) const;
  // The place of the turn that ends at `end`: an end-of-sentence token or the end of the timeline.
  // nullopt if no control token opens the turn.
  std::optional<Place> PlaceOf(absl::Span<const int32_t> timeline, size_t end) const;
  // Calls `visit(message, end, nth)` for each assistant turn in `rendered` that ends and is opened
  // by control tokens of its own. `nth`: its number among the turns that end.
  template <class Visit>
  void ForEachTurn(absl::Span<const int32_t> rendered, absl::Span<const ChatMessage> messages,
                   const ChatOptions& options, Visit&& visit) const;

  const Tokenizer* tokenizer_;
  int32_t end_ = -1, assistant_ = -1, think_ = -1, think_end_ = -1;
  int32_t user_ = -1, latest_reminder_ = -1;  // -1 where the tokenizer has none
  std::vector<int32_t> tasks_;
};

}  // namespace dsv4
