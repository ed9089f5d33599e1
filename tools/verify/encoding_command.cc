// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/encoding_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "lib/text/chat_profile.h"
#include "lib/text/completion_parser.h"
#include "lib/text/python_json.h"
#include "lib/text/streaming_parser.h"
#include "tools/verify/command_line.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxCasesBytes = int64_t{256} << 20;
constexpr int64_t kShownMismatches = 10;

// Readers of a case. Corrupt, as "PLACE...", for what the format does not have.

absl::StatusOr<const JsonValue*> Member(const JsonValue& object, absl::string_view key,
                                        absl::string_view place) {
  if (object.AsObject() == nullptr) return Corrupt(place, " is not an object");
  const JsonValue* value = object.Find(key);
  if (value == nullptr) return Corrupt(place, ".", key, " is missing");
  return value;
}

absl::StatusOr<std::string> StringMember(const JsonValue& object, absl::string_view key,
                                         absl::string_view place) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, key, place));
  if (value->AsString() == nullptr) return Corrupt(place, ".", key, " is not a string");
  return *value->AsString();
}

absl::StatusOr<const std::vector<JsonValue>*> ArrayMember(const JsonValue& object,
                                                          absl::string_view key,
                                                          absl::string_view place) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, key, place));
  if (value->AsArray() == nullptr) return Corrupt(place, ".", key, " is not an array");
  return value->AsArray();
}

absl::StatusOr<ThinkingMode> ModeMember(const JsonValue& object, const std::string& place) {
  DSV4_ASSIGN_OR_RETURN(const std::string mode, StringMember(object, "thinking_mode", place));
  if (mode == "chat") return ThinkingMode::kChat;
  if (mode == "thinking") return ThinkingMode::kThinking;
  return Corrupt(place, ".thinking_mode = ", mode, " is not chat or thinking");
}

// Which encoder the cases of a file were recorded with; without the key the preview's.
absl::StatusOr<ChatEncoder> EncoderMember(const JsonValue& root, const std::string& place) {
  if (root.Find("encoder") == nullptr) return ChatEncoder::kPreview;
  DSV4_ASSIGN_OR_RETURN(const std::string name, StringMember(root, "encoder", place));
  for (const ChatEncoder encoder : {ChatEncoder::kPreview, ChatEncoder::k0731}) {
    if (name == ChatEncoderName(encoder)) return encoder;
  }
  return Corrupt(place, ".encoder = ", name, " is not preview or 0731");
}

absl::StatusOr<bool> BoolMember(const JsonValue& object, absl::string_view key,
                                const std::string& place) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, key, place));
  if (!value->AsBool()) return Corrupt(place, ".", key, " is not a boolean");
  return *value->AsBool();
}

// All but the effort, which the encoder may refuse.
absl::StatusOr<ChatOptions> OptionsMember(const JsonValue& item, ChatEncoder encoder,
                                          const std::string& item_place) {
  const std::string place = item_place + ".options";
  DSV4_ASSIGN_OR_RETURN(const JsonValue* object, Member(item, "options", item_place));
  ChatOptions options = {.encoder = encoder};
  DSV4_ASSIGN_OR_RETURN(options.mode, ModeMember(*object, place));
  DSV4_ASSIGN_OR_RETURN(const JsonValue* effort, Member(*object, "reasoning_effort", place));
  if (!effort->IsNull() && effort->AsString() == nullptr) {
    return Corrupt(place, ".reasoning_effort is not null or a string");
  }
  DSV4_ASSIGN_OR_RETURN(options.drop_thinking, BoolMember(*object, "drop_thinking", place));
  DSV4_ASSIGN_OR_RETURN(options.begin_of_sentence,
                        BoolMember(*object, "add_default_bos_token", place));
  return options;
}

// What the published code is recorded to have done: exactly one of `result_key` and "error".
absl::StatusOr<bool> IsRefused(const JsonValue& item, absl::string_view result_key,
                               const std::string& place) {
  const bool refused = item.Find("error") != nullptr;
  if (refused == (item.Find(result_key) != nullptr)) {
    return Corrupt(place, " needs either ", result_key, " or error");
  }
  return refused;
}

absl::StatusOr<ChatMessage> MessageMember(const JsonValue& item, const std::string& item_place) {
  const std::string place = item_place + ".message";
  DSV4_ASSIGN_OR_RETURN(const JsonValue* object, Member(item, "message", item_place));
  ChatMessage message;
  DSV4_ASSIGN_OR_RETURN(message.role, StringMember(*object, "role", place));
  DSV4_ASSIGN_OR_RETURN(message.content, StringMember(*object, "content", place));
  DSV4_ASSIGN_OR_RETURN(message.reasoning_content,
                        StringMember(*object, "reasoning_content", place));
  DSV4_ASSIGN_OR_RETURN(const std::vector<JsonValue>* calls,
                        ArrayMember(*object, "tool_calls", place));
  for (const JsonValue& call : *calls) {
    const std::string call_place =
        absl::StrCat(place, ".tool_calls[", message.tool_calls.size(), "]");
    DSV4_ASSIGN_OR_RETURN(const JsonValue* function, Member(call, "function", call_place));
    ToolCall made;
    DSV4_ASSIGN_OR_RETURN(made.name, StringMember(*function, "name", call_place));
    DSV4_ASSIGN_OR_RETURN(made.arguments, StringMember(*function, "arguments", call_place));
    message.tool_calls.push_back(std::move(made));
  }
  return message;
}

// What is wrong with a text, in one line; empty when it is as expected.
std::string Difference(absl::string_view what, const std::string& got,
                       const std::string& expected) {
  if (got == expected) return "";
  const size_t shorter = std::min(got.size(), expected.size());
  const size_t at =
      std::mismatch(got.begin(), got.begin() + shorter, expected.begin()).first - got.begin();
  const auto shown = [at](const std::string& text) {
    const size_t begin = at < 20 ? 0 : at - 20;
    return absl::Utf8SafeCEscape(absl::string_view(text).substr(begin, at - begin + 40));
  };
  return absl::StrCat(what, " differs at byte ", at, ": \"", shown(got), "\", expected \"",
                      shown(expected), "\"");
}

absl::StatusOr<std::string> Rendered(const JsonValue& item, ChatOptions options) {
  const JsonValue* effort = item.Find("options")->Find("reasoning_effort");
  if (!effort->IsNull()) {
    DSV4_ASSIGN_OR_RETURN(options.effort, EffortFromName(options.encoder, *effort->AsString()));
  }
  std::vector<ChatMessage> context;
  if (const JsonValue* before = item.Find("context"); before != nullptr && !before->IsNull()) {
    DSV4_ASSIGN_OR_RETURN(context, MessagesFromJson(*before, "context"));
  }
  DSV4_ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                        MessagesFromJson(*item.Find("messages")));
  return RenderChatText(messages, options, context);
}

// What is wrong with the parts of an assistant's message, as Difference says it.
std::string MessageDifference(absl::string_view which, const ChatMessage& got,
                              const std::vector<bool>& repaired, const ChatMessage& expected) {
  std::string wrong = Difference(absl::StrCat(which, "reasoning_content"), got.reasoning_content,
                                 expected.reasoning_content);
  if (wrong.empty()) {
    wrong = Difference(absl::StrCat(which, "content"), got.content, expected.content);
  }
  if (wrong.empty() && got.tool_calls.size() != expected.tool_calls.size()) {
    wrong = absl::StrCat("has ", got.tool_calls.size(), " ", which, "tool calls, expected ",
                         expected.tool_calls.size());
  }
  for (size_t i = 0; wrong.empty() && i < expected.tool_calls.size(); ++i) {
    const std::string call = absl::StrCat(which, "tool_calls[", i, "]");
    wrong = Difference(call + ".name", got.tool_calls[i].name, expected.tool_calls[i].name);
    if (!wrong.empty()) break;
    const std::string &arguments = got.tool_calls[i].arguments,
                      &wanted = expected.tool_calls[i].arguments;
    if (i >= repaired.size() || !repaired[i]) {
      wrong = Difference(call + ".arguments", arguments, wanted);
    } else if (IsJson(wanted) || !IsJson(arguments)) {
      wrong = call + ".arguments are JSON and were repaired, or still are none";
    }
  }
  return wrong;
}

// The events of a streamed completion, joined.
struct Streamed {
  ChatMessage message;
  std::vector<bool> repaired;  // by call
  bool malformed = false;
  bool broken_off = false;

  bool operator==(const Streamed& other) const {
    const std::vector<ToolCall>& calls = message.tool_calls;
    return message.reasoning_content == other.message.reasoning_content &&
           message.content == other.message.content && repaired == other.repaired &&
           malformed == other.malformed && broken_off == other.broken_off &&
           std::equal(calls.begin(), calls.end(), other.message.tool_calls.begin(),
                      other.message.tool_calls.end(), [](const ToolCall& a, const ToolCall& b) {
                        return a.name == b.name && a.arguments == b.arguments;
                      });
  }
};

Streamed Stream(absl::string_view text, ThinkingMode mode, size_t piece_bytes) {
  Streamed made;
  StreamingParser parser({.mode = mode});
  const auto take = [&](const ParserEvent& event) {
    using Kind = ParserEvent::Kind;
    switch (event.kind) {
      case Kind::kReasoning:
        absl::StrAppend(&made.message.reasoning_content, event.text);
        break;
      case Kind::kText:
        absl::StrAppend(&made.message.content, event.text);
        break;
      case Kind::kToolCallStart:
        made.message.tool_calls.push_back(
            {.id = {}, .name = std::string(event.text), .arguments = {}});
        made.repaired.push_back(false);
        break;
      case Kind::kToolCallArguments:
        absl::StrAppend(&made.message.tool_calls.back().arguments, event.text);
        if (event.repaired) made.repaired.back() = true;
        break;
      case Kind::kToolCallEnd:
        break;
      case Kind::kMalformed:
        made.malformed = true;
        break;
      case Kind::kEnd:
        made.broken_off = event.incomplete || !event.stopped;
        break;
    }
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece_bytes, text.size()))) {
    parser.Feed(text.substr(0, piece_bytes), take);
  }
  parser.End(take);
  return made;
}

// Each returns what is wrong with the case, empty when nothing is, or Corrupt for one that cannot
// be read.
absl::StatusOr<std::string> CheckEncode(const JsonValue& item, ChatEncoder encoder,
                                        const std::string& place) {
  DSV4_RETURN_IF_ERROR(ArrayMember(item, "messages", place).status());
  DSV4_ASSIGN_OR_RETURN(const ChatOptions options, OptionsMember(item, encoder, place));
  DSV4_ASSIGN_OR_RETURN(const bool refused, IsRefused(item, "prompt", place));
  std::string expected;
  if (!refused) {
    DSV4_ASSIGN_OR_RETURN(expected, StringMember(item, "prompt", place));
  }
  const absl::StatusOr<std::string> prompt = Rendered(item, options);
  if (refused) return prompt.ok() ? "is rendered, but was refused" : "";
  if (!prompt.ok()) return absl::StrCat("is refused: ", prompt.status().message());
  return Difference("the prompt", *prompt, expected);
}

absl::StatusOr<std::string> CheckParse(const JsonValue& item, ChatEncoder,
                                       const std::string& place) {
  DSV4_ASSIGN_OR_RETURN(const std::string text, StringMember(item, "text", place));
  DSV4_ASSIGN_OR_RETURN(const ThinkingMode mode, ModeMember(item, place));
  DSV4_ASSIGN_OR_RETURN(const bool refused, IsRefused(item, "message", place));
  ChatMessage expected;
  if (!refused) {
    DSV4_ASSIGN_OR_RETURN(expected, MessageMember(item, place));
  }
  const Streamed streamed = Stream(text, mode, text.size());
  if (!(streamed == Stream(text, mode, 1))) return "streams differently byte by byte";
  const absl::StatusOr<ChatMessage> message = ParseCompletion(text, mode);
  if (refused) return message.ok() ? "is parsed, but was refused" : "";
  if (!message.ok()) return absl::StrCat("is refused: ", message.status().message());
  std::string wrong = Difference("role", message->role, expected.role);
  if (wrong.empty()) wrong = MessageDifference("", *message, {}, expected);
  if (wrong.empty())
    wrong = MessageDifference("streamed ", streamed.message, streamed.repaired, expected);
  if (wrong.empty() && streamed.malformed) wrong = "streams as malformed, but was parsed";
  return wrong;
}

absl::StatusOr<bool> Verify(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxCasesBytes));
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParsePythonJson(text, path));
  DSV4_ASSIGN_OR_RETURN(const ChatEncoder encoder, EncoderMember(root, path));
  struct List {
    const char* name;
    absl::StatusOr<std::string> (*check)(const JsonValue&, ChatEncoder, const std::string&);
    const std::vector<JsonValue>* items = nullptr;
  };
  List lists[] = {{"encode", CheckEncode}, {"parse", CheckParse}};
  size_t cases = 0;
  int64_t mismatches = 0;
  for (List& list : lists) {
    DSV4_ASSIGN_OR_RETURN(list.items, ArrayMember(root, list.name, path));
    for (size_t i = 0; i < list.items->size(); ++i, ++cases) {
      const std::string place = absl::StrCat(path, ": ", list.name, "[", i, "]");
      DSV4_ASSIGN_OR_RETURN(const std::string wrong, list.check((*list.items)[i], encoder, place));
      if (wrong.empty() || ++mismatches > kShownMismatches) continue;
      std::printf("%s[%zu]: %s\n", list.name, i, wrong.c_str());
    }
  }
  if (cases == 0) return Corrupt(path, ": encode and parse hold no case");
  std::printf("encoding: %zu encode and %zu parse cases, %lld mismatches\n", lists[0].items->size(),
              lists[1].items->size(), static_cast<long long>(mismatches));
  return mismatches == 0;
}

}  // namespace

int RunEncodingCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, {}, 1);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  const absl::StatusOr<bool> passed = Verify(parsed->files[0]);
  if (!passed.ok()) return ReportError(passed.status());
  return *passed ? kExitPassed : kExitFailed;
}

}  // namespace dsv4
