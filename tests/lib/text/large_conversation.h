// SPDX-License-Identifier: Apache-2.0
// Conversations as JSON of a size, for measuring: many short turns, a few long ones, and agents'
// turns, which are mostly tool calls and results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/python_json.h"

namespace dsv4::test {

enum class ConversationKind { kShortTurns, kLongTurns, kToolCalls };

// At least `bytes` long, by less than one turn.
inline std::string LargeConversation(ConversationKind kind, size_t bytes) {
  const auto string = [](std::string text) { return JsonValue::FromString(std::move(text)); };
  const auto message = [&](const char* role, std::string content) {
    return std::vector<JsonMember>{{"role", string(role)}, {"content", string(std::move(content))}};
  };
  const std::string sentence =
      "The quick brown fox said \"jump\" over the lazy dog;\n天气很好，我们去公园吧。 if (a < b) "
      "{ ";
  std::string paragraph = sentence;
  while (kind != ConversationKind::kShortTurns && paragraph.size() < 20000) paragraph += sentence;

  std::string json = "[";
  const auto append = [&](std::vector<JsonMember> members) {
    if (json.size() > 1) json += ", ";
    AppendPythonJson(JsonValue::FromObject(std::move(members)), &json);
  };
  for (int turn = 0; json.size() < bytes; ++turn) {
    append(message("user", paragraph));
    std::vector<JsonMember> answer = message("assistant", sentence);
    answer.push_back({"reasoning_content", string(paragraph)});
    if (kind != ConversationKind::kToolCalls) {
      append(std::move(answer));
      continue;
    }
    std::vector<JsonValue> calls;
    for (int call = 0; call < 4; ++call) {
      std::string arguments;
      AppendPythonJson(
          JsonValue::FromObject({{"path", string("src/main.cc")},
                                 {"text", string(paragraph)},
                                 {"lines", JsonValue::FromArray({string("1"), string("20")})}}),
          &arguments);
      calls.push_back(JsonValue::FromObject(
          {{"id", string("call_" + std::to_string(4 * turn + call))},
           {"type", string("function")},
           {"function",
            JsonValue::FromObject({{"name", string("edit")}, {"arguments", string(arguments)}})}}));
    }
    answer.push_back({"tool_calls", JsonValue::FromArray(std::move(calls))});
    append(std::move(answer));
    for (int call = 3; call >= 0; --call) {
      std::vector<JsonMember> result = message("tool", paragraph);
      result.push_back({"tool_call_id", string("call_" + std::to_string(4 * turn + call))});
      append(std::move(result));
    }
  }
  return json + "]";
}

}  // namespace dsv4::test
