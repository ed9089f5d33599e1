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

// A turn of the assistant as it was sampled.
struct SampledTurn {
  std::vector<int32_t> ids;  // what follows the opened turn, without the token that ended it
  bool reasons;              // the turn was opened with <think>
  // Where in `ids` the content begins; nullopt where no token boundary is that place.
  std::optional<size_t> content_begin;
};

class ChatTokens {
 public:
  // NotFound, naming it: a control token that the tokenizer lacks. `tokenizer` must outlive this.
  static absl::StatusOr<ChatTokens> Create(const Tokenizer& tokenizer);

  // Whether a prompt that ends with `id` leaves the turn to the assistant.
  bool OpensTurn(int32_t id) const { return IsTask(id) || id == think_ || id == think_end_; }
  // Whether that turn begins with reasoning.
  bool OpensReasoning(int32_t id) const { return id == think_; }
  // Whether `id` begins a turn of another, or one more of the assistant.
  bool BeginsOtherTurn(int32_t id) const {
    return id == user_ || id == assistant_ || id == latest_reminder_;
  }

  // The turn of the sampled `ids`. Reasoning that they do not end is closed.
  SampledTurn TurnOf(std::vector<int32_t> ids, bool reasons) const;

  // The prompt of `messages` as RenderChat gives it, except the turns that were sampled. `sampled`
  // has one entry for each message. A sampled turn keeps its tokens, or the tokens of its content
  // where its reasoning is dropped. nullopt, and a turn whose dropped reasoning cannot be cut out,
  // is rendered from the message. Errors: those of RenderChat.
  absl::StatusOr<std::vector<int32_t>> Render(absl::Span<const ChatMessage> messages,
                                              absl::Span<const std::optional<SampledTurn>> sampled,
                                              const ChatOptions& options) const;

  // Which turns of the assistant in `messages` were sampled as the tokens that `timeline`, another
  // rendering of the same conversation, has in their place; nullopt for the others. Errors: those
  // of RenderChat.
  absl::StatusOr<std::vector<std::optional<SampledTurn>>> SampledIn(
      absl::Span<const int32_t> timeline, absl::Span<const ChatMessage> messages,
      const ChatOptions& options) const;

 private:
  // Where a turn of the assistant lies: `begin` is behind what opens it, `end` the token that ends
  // it.
  struct Place {
    size_t begin, end;
    bool reasons;  // it is opened with <think>
  };
  explicit ChatTokens(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  bool IsTask(int32_t id) const;
  // Of the turn that ends at `end`, the end of the timeline or an end-of-sentence token; nullopt
  // when nothing opens it.
  std::optional<Place> PlaceOf(absl::Span<const int32_t> timeline, size_t end) const;
  // Calls `visit(message, end, nth)` for the turns of the assistant in `rendered` that end, each
  // the `nth` one that does, if control tokens of their own open them.
  template <class Visit>
  void ForEachTurn(absl::Span<const int32_t> rendered, absl::Span<const ChatMessage> messages,
                   const ChatOptions& options, Visit&& visit) const;

  const Tokenizer* tokenizer_;
  int32_t end_ = -1, assistant_ = -1, think_ = -1, think_end_ = -1;
  int32_t user_ = -1, latest_reminder_ = -1;  // -1 where the tokenizer has none
  std::vector<int32_t> tasks_;
};

}  // namespace dsv4
