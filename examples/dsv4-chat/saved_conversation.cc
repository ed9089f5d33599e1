// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/saved_conversation.h"

#include <simdjson.h>

#include <string_view>

#include "examples/console/engine_options.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/json_text.h"

namespace chat {
namespace {

namespace dom = simdjson::dom;

constexpr int64_t kVersion = 1;

std::string NameOf(dsv4_thinking_mode mode) {
  switch (mode) {
    case DSV4_THINKING_OFF:
      return "off";
    case DSV4_THINKING_LOW:
      return "low";
    case DSV4_THINKING_HIGH:
      return "high";
    default:
      return "max";
  }
}

std::string RoleOf(const std::string& message) {
  dom::parser parser;
  return std::string(parser.parse(message)["role"].get_string().value());
}

std::string Text(const dom::element& object, std::string_view key) {
  return std::string(object[key].get_string().value());
}

// What is missing or of another kind throws a simdjson_error.
SavedConversation Read(const dom::element& root, const std::string& path) {
  if (root["dsv4_chat"].get_int64().value() != kVersion)
    throw Failure{kUsageError, path + ": is a conversation in another version of the format"};
  SavedConversation read;
  read.system = Text(root, "system");
  read.tools = Text(root, "tools");
  read.thinking = ParseName(path + ": thinking", Text(root, "thinking"), kThinkingModes);
  for (const dom::element message : root["messages"].get_array()) {
    const std::string role = Text(message, "role");
    if (role != "user" && role != "assistant" && role != "tool")
      throw Failure{kUsageError, path + ": a message has the role \"" + role + "\""};
    read.messages.push_back(simdjson::minify(message));
  }
  for (const dom::element call : root["open_calls"].get_array())
    read.open_calls.push_back({Text(call, "id"), Text(call, "name"), Text(call, "arguments")});
  return read;
}

}  // namespace

std::vector<Turn> TurnsOf(const std::vector<std::string>& messages) {
  std::vector<Turn> turns;
  bool in_results = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role = RoleOf(messages[i]);
    const bool is_result = role == "tool";
    // Results of several calls are given at once.
    if (role != "assistant" && !(is_result && in_results)) turns.push_back({i, i + 1});
    if (is_result && in_results) turns.back().answer = i + 1;
    in_results = is_result;
  }
  return turns;
}

void WriteConversation(const std::string& path, const SavedConversation& conversation) {
  std::vector<std::string> calls;
  for (const dsv4::ToolCall& call : conversation.open_calls) {
    calls.push_back(JsonObject()
                        .String("id", call.id)
                        .String("name", call.name)
                        .String("arguments", call.arguments)
                        .text());
  }
  ReplaceFile(path, JsonObject()
                            .Number("dsv4_chat", kVersion)
                            .String("system", conversation.system)
                            .String("tools", conversation.tools)
                            .String("thinking", NameOf(conversation.thinking))
                            .Json("messages", JsonArray(conversation.messages))
                            .Json("open_calls", JsonArray(calls))
                            .text() +
                        "\n");
}

SavedConversation ReadConversation(const std::string& path) {
  const std::string text = ReadWholeFile(path);
  try {
    dom::parser parser;
    return Read(parser.parse(text), path);
  } catch (const simdjson::simdjson_error& error) {
    throw Failure{kUsageError, path + ": not a saved conversation: " + error.what()};
  }
}

}  // namespace chat
