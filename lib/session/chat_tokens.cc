// SPDX-License-Identifier: Apache-2.0
#include "lib/session/chat_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_prompt.h"
#include "lib/text/chat_turns.h"
#include "lib/text/completion_markup.h"

namespace dsv4 {
namespace {

constexpr ControlToken kTasks[] = {ControlToken::kAction,    ControlToken::kQuery,
                                   ControlToken::kAuthority, ControlToken::kDomain,
                                   ControlToken::kTitle,     ControlToken::kReadUrl};

// Whether an assistant's turn after `turn` begins after control tokens of its own.
bool OpensNext(const ChatTurn& turn) {
  return turn.IsUser() || turn.HasRole("developer") || turn.Task() != nullptr;
}

bool EndsTurn(const ChatTurn& turn) { return turn.HasRole("assistant") && !turn.message->wo_eos; }

}  // namespace

absl::StatusOr<ChatTokens> ChatTokens::Create(const Tokenizer& tokenizer) {
  ChatTokens made(tokenizer);
  for (const auto& [token, id] : {std::pair(ControlToken::kEndOfSentence, &made.end_),
                                  std::pair(ControlToken::kAssistant, &made.assistant_),
                                  std::pair(ControlToken::kThink, &made.think_),
                                  std::pair(ControlToken::kThinkEnd, &made.think_end_)}) {
    const std::optional<int32_t> found = tokenizer.FindAddedToken(ControlTokenText(token));
    if (!found) {
      return NotFound("the tokenizer has no added token ", Quoted(ControlTokenText(token)));
    }
    *id = *found;
  }
  for (const auto& [token, id] :
       {std::pair(ControlToken::kUser, &made.user_),
        std::pair(ControlToken::kLatestReminder, &made.latest_reminder_)}) {
    *id = tokenizer.FindAddedToken(ControlTokenText(token)).value_or(-1);
  }
  // Conversations without a task need no task token.
  for (const ControlToken task : kTasks) {
    const std::optional<int32_t> found = tokenizer.FindAddedToken(ControlTokenText(task));
    if (found) made.tasks_.push_back(*found);
  }
  return made;
}

bool ChatTokens::IsTask(int32_t id) const {
  return std::find(tasks_.begin(), tasks_.end(), id) != tasks_.end();
}

SampledTurn ChatTokens::TurnOf(std::vector<int32_t> ids, bool reasons) const {
  if (!reasons) return {.ids = std::move(ids), .reasons = false, .content_begin = 0};
  SampledTurn turn = {.ids = std::move(ids), .reasons = true, .content_begin = std::nullopt};
  const auto end = std::find(turn.ids.begin(), turn.ids.end(), think_end_);
  const size_t length = static_cast<size_t>(end - turn.ids.begin());
  // What ends the reasoning may also be spelled by other tokens than its own, or be a call.
  const absl::StatusOr<std::string> reasoning =
      tokenizer_->Decode(absl::MakeConstSpan(turn.ids).first(length));
  if (!reasoning.ok() || absl::StrContains(*reasoning, markup::kThinkEnd) ||
      absl::StrContains(*reasoning, markup::kCallsStart)) {
    return turn;
  }
  if (end == turn.ids.end()) turn.ids.push_back(think_end_);
  turn.content_begin = length + 1;
  return turn;
}

std::optional<ChatTokens::Place> ChatTokens::PlaceOf(absl::Span<const int32_t> timeline,
                                                     size_t end) const {
  size_t begin = end;
  while (begin > 0 && timeline[begin - 1] != assistant_ && !IsTask(timeline[begin - 1])) --begin;
  if (begin == 0 || begin == timeline.size()) return std::nullopt;
  const bool reasons = timeline[begin] == think_;
  if (!IsTask(timeline[begin - 1])) ++begin;
  if (begin > end) return std::nullopt;
  return Place{.begin = begin, .end = end, .reasons = reasons};
}

// No text of a message makes a control token, so that those in the rendered prompt tell where the
// turns are: each of the assistant's turns that ends does so with its own end-of-sentence token,
// and what opened it is the nearest <｜Assistant｜> or task before.
template <class Visit>
void ChatTokens::ForEachTurn(absl::Span<const int32_t> rendered,
                             absl::Span<const ChatMessage> messages, const ChatOptions& options,
                             Visit&& visit) const {
  const std::vector<ChatTurn> turns = TurnsOf({}, messages, options).turns;
  auto turn = turns.begin();
  size_t nth = 0;
  for (size_t end = 0; end < rendered.size(); ++end) {
    if (rendered[end] != end_) continue;
    turn = std::find_if(turn, turns.end(), EndsTurn);
    // Where the message that opened it is dropped, no control token divides it from what precedes.
    const bool opened = turn != turns.begin() && OpensNext(*std::prev(turn));
    const size_t message = turn->index;
    ++turn;
    const std::optional<Place> place = PlaceOf(rendered, end);
    if (opened && place) visit(message, *place, nth);
    ++nth;
  }
}

absl::StatusOr<std::vector<int32_t>> ChatTokens::Render(
    absl::Span<const ChatMessage> messages, absl::Span<const std::optional<SampledTurn>> sampled,
    const ChatOptions& options) const {
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                        RenderChat(*tokenizer_, messages, options));
  std::vector<int32_t> timeline;
  const auto copy = [&](absl::Span<const int32_t> ids) {
    timeline.insert(timeline.end(), ids.begin(), ids.end());
  };
  size_t copied = 0;
  ForEachTurn(rendered, messages, options, [&](size_t message, const Place& place, size_t) {
    const std::optional<SampledTurn>& as_sampled = sampled[message];
    if (!as_sampled) return;
    const bool drops = as_sampled->reasons && !place.reasons;
    if (drops && !as_sampled->content_begin) return;
    copy(absl::MakeConstSpan(rendered).subspan(copied, place.begin - copied));
    if (place.reasons && !as_sampled->reasons) timeline.push_back(think_end_);
    copy(absl::MakeConstSpan(as_sampled->ids).subspan(drops ? *as_sampled->content_begin : 0));
    copied = place.end;
  });
  copy(absl::MakeConstSpan(rendered).subspan(copied));
  return timeline;
}

absl::StatusOr<std::vector<std::optional<SampledTurn>>> ChatTokens::SampledIn(
    absl::Span<const int32_t> timeline, absl::Span<const ChatMessage> messages,
    const ChatOptions& options) const {
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                        RenderChat(*tokenizer_, messages, options));
  std::vector<size_t> ends;
  for (size_t i = 0; i < timeline.size(); ++i) {
    if (timeline[i] == end_) ends.push_back(i);
  }
  ends.push_back(timeline.size());  // of a turn that is still open
  const auto part = [](absl::Span<const int32_t> ids, const Place& place) {
    return ids.subspan(place.begin, place.end - place.begin);
  };
  std::vector<std::optional<SampledTurn>> sampled(messages.size());
  ForEachTurn(rendered, messages, options, [&](size_t message, const Place& place, size_t nth) {
    if (nth >= ends.size()) return;
    const std::optional<Place> other = PlaceOf(timeline, ends[nth]);
    if (!other || other->reasons != place.reasons) return;
    const absl::Span<const int32_t> ids = part(timeline, *other);
    const absl::StatusOr<std::string> text = tokenizer_->Decode(ids);
    if (!text.ok() || *text != tokenizer_->Decode(part(rendered, place)).value_or("")) return;
    sampled[message] = TurnOf({ids.begin(), ids.end()}, place.reasons);
  });
  return sampled;
}

}  // namespace dsv4
