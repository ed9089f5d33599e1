// SPDX-License-Identifier: Apache-2.0
// A prompt under construction: one text, and the places in it that are control tokens rather than
// text that may spell one. Which tokens and texts a conversation needs is chat_encoder.h's.
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

  // Anything that a user, a tool or a model wrote: no control token comes out of it.
  void Text(absl::string_view text) { text_.append(text.data(), text.size()); }
  // The same, of the value as Python writes it.
  void Json(const JsonValue& value);

  // The format's own words: what spells a control token in them is one.
  void Template(absl::string_view words);

  const std::string& text() const& { return text_; }
  std::string&& text() && { return std::move(text_); }

  // Neighbouring texts are one string to the tokenizer, because words may reach from one into the
  // next. Surrogates, which no token can spell, become U+FFFD. NotFound: a control token (named)
  // that the tokenizer lacks. InvalidArgument: text that is not WTF-8.
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
