// SPDX-License-Identifier: Apache-2.0
// A prompt under construction: one text, and the places in it that are control tokens. Text that
// spells a control token is not one. chat_encoder.h fills the prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/tokenizer.h"

namespace dsv4 {

// The added tokens that structure a prompt.
enum class ControlToken : uint8_t {
  kBeginOfSentence,
  kEndOfSentence,
  kUser,
  kAssistant,
  kLatestReminder,
  kThink,
  kThinkEnd,
  kDsml,
  kAction,
  kQuery,
  kAuthority,
  kDomain,
  kTitle,
  kReadUrl,
};
inline constexpr size_t kControlTokenCount = 14;

// As tokenizer.json spells it.
absl::string_view ControlTokenText(ControlToken token);

class ChatPrompt {
 public:
  void Control(ControlToken token);

  // Adds text of a user, a tool or a model. It never becomes a control token.
  void Text(absl::string_view text) { text_.append(text.data(), text.size()); }
  // Adds a value as Text, written as JSON like Python does.
  void Json(const JsonValue& value);

  // Adds text of the format itself. Control tokens that it spells are control tokens.
  void Template(absl::string_view words);

  const std::string& text() const& { return text_; }
  std::string&& text() && { return std::move(text_); }

  // The token ids. Neighbouring texts are tokenized as one string, because words may span them.
  // Surrogates become U+FFFD, since no token can spell them. Errors: NotFound if the tokenizer
  // lacks a control token (named), InvalidArgument for text that is not WTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(const Tokenizer& tokenizer) const;

 private:
  struct Place {
    size_t begin;  // in text_
    ControlToken token;
  };
  std::string text_;
  std::vector<Place> controls_;  // in order, disjoint
};

}  // namespace dsv4
