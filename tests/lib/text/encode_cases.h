// SPDX-License-Identifier: Apache-2.0
// The recorded conversations of encoding_cases.json (tests/oracle/README.md), and those of the
// newer encoder.
#pragma once

#include <string>
#include <vector>

#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "lib/text/chat_profile.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4::test {

struct EncodeCase {
  size_t number;
  const JsonValue* messages;
  const JsonValue* context;  // null when there is none
  ChatOptions options;
  const std::string* prompt;  // null when the published encoder refuses the conversation
  const std::string* error;   // with this Python exception
};

inline ChatOptions OptionsFrom(const JsonValue& object, ChatEncoder encoder) {
  ChatOptions options = {.encoder = encoder};
  if (*object.Find("thinking_mode")->AsString() == "thinking") {
    options.mode = ThinkingMode::kThinking;
  }
  if (const std::string* effort = object.Find("reasoning_effort")->AsString()) {
    options.effort = EffortFromName(encoder, *effort).value();
  }
  options.drop_thinking = *object.Find("drop_thinking")->AsBool();
  options.begin_of_sentence = *object.Find("add_default_bos_token")->AsBool();
  return options;
}

// The cases point into `document`.
inline std::vector<EncodeCase> EncodeCasesOf(const JsonValue& document, ChatEncoder encoder) {
  const auto string_at = [](const JsonValue& object, absl::string_view key) {
    const JsonValue* value = object.Find(key);
    return value ? value->AsString() : nullptr;
  };
  std::vector<EncodeCase> read;
  for (const JsonValue& item : *document.Find("encode")->AsArray()) {
    read.push_back({read.size(), item.Find("messages"), item.Find("context"),
                    OptionsFrom(*item.Find("options"), encoder), string_at(item, "prompt"),
                    string_at(item, "error")});
  }
  return read;
}

inline const std::vector<EncodeCase>& EncodeCases() {
  static const JsonValue document = RecordedDocument("encoding_cases.json");
  static const std::vector<EncodeCase> cases = EncodeCasesOf(document, ChatEncoder::kPreview);
  return cases;
}

inline const std::vector<EncodeCase>& EncodeCases0731() {
  static const JsonValue document = RecordedDocument("encoding_cases_0731.json");
  static const std::vector<EncodeCase> cases = EncodeCasesOf(document, ChatEncoder::k0731);
  return cases;
}

struct Conversation {
  std::vector<ChatMessage> context;
  std::vector<ChatMessage> messages;
};

inline absl::StatusOr<Conversation> ConversationOf(const EncodeCase& c) {
  Conversation made;
  if (c.context) {
    auto context = MessagesFromJson(*c.context, "context");
    if (!context.ok()) return context.status();
    made.context = *std::move(context);
  }
  auto messages = MessagesFromJson(*c.messages);
  if (!messages.ok()) return messages.status();
  made.messages = *std::move(messages);
  return made;
}

}  // namespace dsv4::test
