// SPDX-License-Identifier: Apache-2.0
// The recorded completions of encoding_cases.json (tests/oracle/README.md) with what the published
// parser makes of them.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/completion_parser.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4::test {

struct ParseCase {
  std::string text;
  ThinkingMode mode;
  bool refused;  // then `message` is empty
  ChatMessage message;
};

inline std::vector<ParseCase> ReadParseCases() {
  const JsonValue document = RecordedDocument("encoding_cases.json");
  std::vector<ParseCase> cases;
  for (const JsonValue& item : *document.Find("parse")->AsArray()) {
    ParseCase one;
    one.text = *item.Find("text")->AsString();
    one.mode = *item.Find("thinking_mode")->AsString() == "thinking" ? ThinkingMode::kThinking
                                                                     : ThinkingMode::kChat;
    const JsonValue* message = item.Find("message");
    one.refused = message == nullptr;
    if (message != nullptr) {
      one.message.reasoning_content = *message->Find("reasoning_content")->AsString();
      one.message.content = *message->Find("content")->AsString();
      for (const JsonValue& call : *message->Find("tool_calls")->AsArray()) {
        const JsonValue* function = call.Find("function");
        one.message.tool_calls.push_back({.id = "",
                                          .name = *function->Find("name")->AsString(),
                                          .arguments = *function->Find("arguments")->AsString()});
      }
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace dsv4::test
