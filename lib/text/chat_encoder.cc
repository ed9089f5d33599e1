// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_encoder.h"

#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/unicode.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
constexpr absl::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
constexpr absl::string_view kUser = "<｜User｜>";
constexpr absl::string_view kAssistant = "<｜Assistant｜>";
constexpr absl::string_view kThink = "<think>";
constexpr absl::string_view kThinkEnd = "</think>";

// A prompt as control tokens and the texts between them. Neighbouring texts are one segment: words
// may reach from one message into the next.
class Prompt {
 public:
  struct Segment {
    absl::string_view control;  // empty for a text
    std::string text;
  };

  void Control(absl::string_view token) { segments_.push_back({token, {}}); }

  void Text(absl::string_view text) {
    if (segments_.empty() || !segments_.back().control.empty()) segments_.emplace_back();
    segments_.back().text.append(text.data(), text.size());
  }

  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
};

absl::Status CheckMessage(const ChatMessage& message, size_t index) {
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    return Unsupported("messages[", index, "]: role ", Quoted(message.role), " is not supported");
  }
  const auto check_text = [&](absl::string_view key, absl::string_view text) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid == text.size()) return absl::OkStatus();
    return InvalidArgument("messages[", index, "].", key, " is not UTF-8 at byte ", valid);
  };
  DSV4_RETURN_IF_ERROR(check_text("content", message.content));
  return check_text("reasoning_content", message.reasoning_content);
}

absl::StatusOr<Prompt> BuildPrompt(absl::Span<const ChatMessage> messages, ThinkingMode mode) {
  size_t last_user_end = 0;  // one more than the index of the last user message; 0 for none
  for (size_t i = 0; i < messages.size(); ++i) {
    DSV4_RETURN_IF_ERROR(CheckMessage(messages[i], i));
    if (messages[i].role == "user") last_user_end = i + 1;
  }
  const bool thinks = mode == ThinkingMode::kThinking;
  Prompt prompt;
  prompt.Control(kBeginOfSentence);
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    const auto has_role = [&](size_t index, absl::string_view role) {
      return index < messages.size() && messages[index].role == role;
    };
    if (message.role == "system") {
      prompt.Text(message.content);
    } else if (message.role == "user") {
      // Neighbouring user messages are one turn.
      if (i > 0 && has_role(i - 1, "user")) {
        prompt.Text("\n\n");
      } else {
        prompt.Control(kUser);
      }
      prompt.Text(message.content);
      if (i + 1 == messages.size() || has_role(i + 1, "assistant")) {
        prompt.Control(kAssistant);
        prompt.Control(thinks && i + 1 >= last_user_end ? kThink : kThinkEnd);
      }
    } else {
      // Reasoning before the last user message is dropped.
      if (thinks && i >= last_user_end) {
        prompt.Text(message.reasoning_content);
        prompt.Control(kThinkEnd);
      }
      prompt.Text(message.content);
      prompt.Control(kEndOfSentence);
    }
  }
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> RenderChat(const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                ThinkingMode mode) {
  DSV4_ASSIGN_OR_RETURN(const Prompt prompt, BuildPrompt(messages, mode));
  std::vector<int32_t> ids;
  for (const Prompt::Segment& segment : prompt.segments()) {
    if (segment.control.empty()) {
      DSV4_RETURN_IF_ERROR(tokenizer.EncodeTo(segment.text, {.added_tokens = false}, &ids));
      continue;
    }
    const std::optional<int32_t> id = tokenizer.FindAddedToken(segment.control);
    if (!id) return NotFound("the tokenizer has no added token ", Quoted(segment.control));
    ids.push_back(*id);
  }
  return ids;
}

absl::StatusOr<std::string> RenderChatText(absl::Span<const ChatMessage> messages,
                                           ThinkingMode mode) {
  DSV4_ASSIGN_OR_RETURN(const Prompt prompt, BuildPrompt(messages, mode));
  std::string text;
  for (const Prompt::Segment& segment : prompt.segments()) {
    absl::StrAppend(&text, segment.control, segment.text);
  }
  return text;
}

}  // namespace dsv4
