// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_prompt.h"

#include <array>
#include <optional>

#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

// In the order of ControlToken. None begins another, and they begin with kFirstBytes.
constexpr std::array<absl::string_view, kControlTokenCount> kTexts = {
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜latest_reminder｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
};
static_assert(static_cast<size_t>(ControlToken::kReadUrl) + 1 == kControlTokenCount);

constexpr char kFirstBytes[] = {'<', kTexts[static_cast<size_t>(ControlToken::kDsml)][0]};

// REQUIRES: `text` is not empty.
std::optional<ControlToken> ControlTokenAt(absl::string_view text) {
  if (text[0] != kFirstBytes[0] && text[0] != kFirstBytes[1]) return std::nullopt;
  for (size_t i = 0; i < kControlTokenCount; ++i) {
    if (absl::StartsWith(text, kTexts[i])) return static_cast<ControlToken>(i);
  }
  return std::nullopt;
}

}  // namespace

absl::string_view ControlTokenText(ControlToken token) {
  return kTexts[static_cast<size_t>(token)];
}

void ChatPrompt::Control(ControlToken token) {
  controls_.push_back({text_.size(), token});
  Text(ControlTokenText(token));
}

void ChatPrompt::Json(const JsonValue& value) { AppendPythonJson(value, &text_); }

void ChatPrompt::Template(absl::string_view words) {
  size_t done = 0;
  for (size_t i = 0; i < words.size();) {
    const std::optional<ControlToken> token = ControlTokenAt(words.substr(i));
    if (!token) {
      ++i;
      continue;
    }
    Text(words.substr(done, i - done));
    Control(*token);
    i += ControlTokenText(*token).size();
    done = i;
  }
  Text(words.substr(done));
}

absl::StatusOr<std::vector<int32_t>> ChatPrompt::Encode(const Tokenizer& tokenizer) const {
  std::vector<int32_t> ids;
  const bool is_utf8 = ValidUtf8Prefix(text_) == text_.size();
  size_t done = 0;
  const auto encode_text_until = [&](size_t end) -> absl::Status {
    const absl::string_view text = absl::string_view(text_).substr(done, end - done);
    if (is_utf8) return tokenizer.EncodeTo(text, {.added_tokens = false}, &ids);
    const size_t valid = ValidWtf8Prefix(text);
    if (valid < text.size())
      return InvalidArgument("the prompt is not UTF-8 at byte ", done + valid);
    std::string whole;
    AppendSurrogatesReplaced(text, &whole);
    return tokenizer.EncodeTo(whole, {.added_tokens = false}, &ids);
  };
  std::array<std::optional<int32_t>, kControlTokenCount> known;
  for (const Place& place : controls_) {
    DSV4_RETURN_IF_ERROR(encode_text_until(place.begin));
    const absl::string_view spelling = ControlTokenText(place.token);
    std::optional<int32_t>& id = known[static_cast<size_t>(place.token)];
    if (!id) id = tokenizer.FindAddedToken(spelling);
    if (!id) return NotFound("the tokenizer has no added token ", Quoted(spelling));
    ids.push_back(*id);
    done = place.begin + spelling.size();
  }
  DSV4_RETURN_IF_ERROR(encode_text_until(text_.size()));
  return ids;
}

}  // namespace dsv4
