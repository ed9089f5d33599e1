// SPDX-License-Identifier: Apache-2.0
// Any bytes as a conversation: read, rendered to text and to ids, and rendered again in other ways
// that must agree. The input is a line "OPTIONS CUT\n", each a character (OPTIONS: its lowest bits;
// CUT: where the context ends), then the messages.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/utf8.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "lib/text/python_json.h"
#include "lib/text/tokenizer.h"

namespace {

using dsv4::ChatMessage;
using dsv4::ChatOptions;
using dsv4::JsonValue;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

ChatOptions OptionsFrom(uint8_t bits) {
  ChatOptions options;
  if ((bits & 1) != 0) options.mode = dsv4::ThinkingMode::kThinking;
  if ((bits & 2) != 0) options.effort = dsv4::ReasoningEffort::kMax;
  options.drop_thinking = (bits & 4) == 0;
  options.begin_of_sentence = (bits & 8) == 0;
  if ((bits & 16) != 0) options.encoder = dsv4::ChatEncoder::k0731;
  return options;
}

// What an assistant's message says survives being written and read.
void CheckWritten(const ChatMessage& message) {
  const JsonValue list = JsonValue::FromArray({dsv4::AssistantToJson(message)});
  std::string json;
  dsv4::AppendPythonJson(list, &json);
  const auto read = dsv4::ParseMessages(json);
  Require(read.ok() && read->size() == 1);
  const ChatMessage& again = read->front();
  Require(again.content == message.content);
  Require(again.reasoning_content == message.reasoning_content);
  Require(again.tool_calls.size() == message.tool_calls.size());
  for (size_t i = 0; i < message.tool_calls.size(); ++i) {
    Require(again.tool_calls[i].id == message.tool_calls[i].id);
    Require(again.tool_calls[i].name == message.tool_calls[i].name);
    Require(again.tool_calls[i].arguments == message.tool_calls[i].arguments);
  }
}

const dsv4::Tokenizer& TinyTokenizer() {
  static const auto loaded =
      dsv4::Tokenizer::Load(DSV4_SOURCE_DIR "/models/dsv4-tiny/tokenizer.json");
  Require(loaded.ok());
  return **loaded;
}

// The ids spell the prompt.
void CheckIds(absl::Span<const ChatMessage> messages, const ChatOptions& options,
              const std::string& text) {
  const auto ids = dsv4::RenderChat(TinyTokenizer(), messages, options);
  Require(ids.ok());
  const auto spelled = TinyTokenizer().Decode(*ids);
  std::string expected;
  dsv4::AppendSurrogatesReplaced(text, &expected);
  Require(spelled.ok() && *spelled == expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line_end = std::min(input.find('\n'), size);
  const ChatOptions options = OptionsFrom(line_end > 0 ? data[0] : 0);
  const auto messages = dsv4::ParseMessages(input.substr(std::min(line_end + 1, size)));
  if (!messages.ok()) return 0;
  for (const ChatMessage& message : *messages) {
    if (message.role == "assistant") CheckWritten(message);
  }

  const auto text = dsv4::RenderChatText(*messages, options);
  if (text.ok()) {
    Require(dsv4::ValidWtf8Prefix(*text) == text->size());
    CheckIds(*messages, options, *text);
    // Effort is nothing without thinking.
    if (options.mode == dsv4::ThinkingMode::kChat) {
      ChatOptions other = options;
      other.effort = dsv4::ReasoningEffort::kHigh;
      const auto same = dsv4::RenderChatText(*messages, other);
      Require(same.ok() && *same == *text);
    }
  }
  const size_t cut = line_end > 1 ? data[1] % (messages->size() + 1) : 0;
  const absl::Span<const ChatMessage> all(*messages);
  const auto rest = dsv4::RenderChatText(all.subspan(cut), options, all.first(cut));
  if (rest.ok()) Require(dsv4::ValidWtf8Prefix(*rest) == rest->size());
  return 0;
}
