// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_turns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/hash_table.h"

namespace dsv4 {
namespace {

bool IsToolResult(const ChatMessage* message) { return message->role == "tool"; }

// A user message does not join a turn with a task; a tool result does.
void AppendTurns(absl::Span<const ChatMessage> messages, absl::string_view list,
                 std::vector<ChatTurn>* turns) {
  const size_t begin = turns->size();
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const bool is_result = IsToolResult(&message);
    if (!is_result && message.role != "user") {
      turns->push_back({&message, list, i});
      continue;
    }
    const bool joins =
        turns->size() > begin && turns->back().IsUser() && (is_result || !turns->back().Task());
    if (!joins) turns->push_back({&message, list, i});
    turns->back().parts.push_back(&message);
  }
}

// Puts the tool results of each user turn, among the places that they have, into the order of the
// calls of the last assistant turn with calls before it. A result of an unknown call goes with the
// first call's; of calls with one id the last counts.
void SortToolResults(absl::Span<ChatTurn> turns) {
  HashMap<absl::string_view, size_t> order;
  for (ChatTurn& turn : turns) {
    if (turn.HasRole("assistant") && !turn.message->tool_calls.empty()) {
      const std::vector<ToolCall>& calls = turn.message->tool_calls;
      order.clear();
      for (size_t i = 0; i < calls.size(); ++i) {
        if (!calls[i].id.empty()) order[calls[i].id] = i;
      }
    }
    if (!turn.IsUser() || order.empty()) continue;
    std::vector<const ChatMessage*> results;
    std::copy_if(turn.parts.begin(), turn.parts.end(), std::back_inserter(results), IsToolResult);
    const auto call_of = [&](const ChatMessage* result) {
      const auto it = order.find(result->tool_call_id);
      return it == order.end() ? 0 : it->second;
    };
    std::stable_sort(
        results.begin(), results.end(),
        [&](const ChatMessage* a, const ChatMessage* b) { return call_of(a) < call_of(b); });
    auto next = results.begin();
    for (const ChatMessage*& part : turn.parts) {
      if (IsToolResult(part)) part = *next++;
    }
  }
}

bool IsKeptRole(absl::string_view role) {
  return role == "user" || role == "system" || role == "assistant" || role == "latest_reminder" ||
         role == "direct_search_results";
}

// `turns` without those before the last user or developer turn whose role is not kept.
std::vector<ChatTurn> WithoutDroppedTurns(absl::Span<const ChatTurn> turns) {
  const size_t end = EndOfLastUserTurn(turns);
  std::vector<ChatTurn> kept;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (i + 1 >= end || IsKeptRole(turns[i].Role())) kept.push_back(turns[i]);
  }
  return kept;
}

}  // namespace

const std::string* ChatTurn::Task() const {
  return message->task && !IsToolResult(message) ? &*message->task : nullptr;
}

std::string ChatTurn::Place() const { return absl::StrCat(list, "[", index, "]"); }

size_t EndOfLastUserTurn(absl::Span<const ChatTurn> turns) {
  size_t end = turns.size();
  while (end > 0 && !turns[end - 1].IsUser() && !turns[end - 1].HasRole("developer")) --end;
  return end;
}

ChatTurns TurnsOf(absl::Span<const ChatMessage> context, absl::Span<const ChatMessage> messages,
                  const ChatOptions& options) {
  ChatTurns made;
  AppendTurns(context, "context", &made.turns);
  made.first_rendered = made.turns.size();
  made.has_context = !made.turns.empty();
  AppendTurns(messages, "messages", &made.turns);
  SortToolResults(absl::MakeSpan(made.turns));

  const bool has_tools = std::any_of(
      made.turns.begin(), made.turns.end(),
      [](const ChatTurn& turn) { return !turn.IsUser() && !turn.message->tools.empty(); });
  made.drops_thinking = options.drop_thinking && !has_tools;
  if (options.mode == ThinkingMode::kThinking && made.drops_thinking) {
    // The context keeps the turns that it would keep alone, as in the prompt that it was rendered
    // to.
    const absl::Span<const ChatTurn> all = made.turns;
    made.first_rendered = WithoutDroppedTurns(all.first(made.first_rendered)).size();
    made.turns = WithoutDroppedTurns(all);
  }
  return made;
}

}  // namespace dsv4
