// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/chat_timeline.h"

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

absl::StatusOr<ChatTimeline> ChatTimeline::Create(const Tokenizer& tokenizer) {
  ChatTimeline made(tokenizer);
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
  // Conversations without a task need no task token.
  for (const ControlToken task : kTasks) {
    const std::optional<int32_t> found = tokenizer.FindAddedToken(ControlTokenText(task));
    if (found) made.tasks_.push_back(*found);
  }
  return made;
}

bool ChatTimeline::IsTask(int32_t id) const {
  return std::find(tasks_.begin(), tasks_.end(), id) != tasks_.end();
}

SampledTurn ChatTimeline::TurnOf(std::vector<int32_t> ids, bool reasons) const {
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

// No text of a message makes a control token, so that those in the rendered prompt tell where the
// turns are: each of the assistant's turns that ends does so with its own end-of-sentence token,
// and what opened it is the nearest <｜Assistant｜> or task before.
absl::StatusOr<std::vector<int32_t>> ChatTimeline::Render(
    absl::Span<const ChatMessage> messages, absl::Span<const std::optional<SampledTurn>> sampled,
    const ChatOptions& options) const {
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rendered,
                        RenderChat(*tokenizer_, messages, options));
  const std::vector<ChatTurn> turns = TurnsOf({}, messages, options).turns;
  std::vector<int32_t> timeline;
  const auto copy = [&](absl::Span<const int32_t> ids) {
    timeline.insert(timeline.end(), ids.begin(), ids.end());
  };
  auto turn = turns.begin();
  size_t copied = 0;
  for (size_t end = 0; end < rendered.size(); ++end) {
    if (rendered[end] != end_) continue;
    turn = std::find_if(turn, turns.end(), EndsTurn);
    const std::optional<SampledTurn>& as_sampled = sampled[turn->index];
    // Where the message that opened it is dropped, no control token divides it from what precedes.
    const bool opened = turn != turns.begin() && OpensNext(*std::prev(turn));
    ++turn;
    if (!as_sampled || !opened) continue;
    size_t begin = end;
    while (rendered[begin - 1] != assistant_ && !IsTask(rendered[begin - 1])) --begin;
    const bool is_task = IsTask(rendered[begin - 1]);
    const bool reasons = rendered[begin] == think_;
    const bool drops = as_sampled->reasons && !reasons;
    if (drops && !as_sampled->content_begin) continue;
    if (!is_task) ++begin;
    copy(absl::MakeConstSpan(rendered).subspan(copied, begin - copied));
    if (reasons && !as_sampled->reasons) timeline.push_back(think_end_);
    copy(absl::MakeConstSpan(as_sampled->ids).subspan(drops ? *as_sampled->content_begin : 0));
    copied = end;
  }
  copy(absl::MakeConstSpan(rendered).subspan(copied));
  return timeline;
}

}  // namespace dsv4
