// SPDX-License-Identifier: Apache-2.0
// Conversations as structs: every recorded conversation of the published encoder
// (encoding_cases.json), converted field by field and synced to a session, against its
// prompt and against the ids of its JSON form; and the errors of each field.
#include <dsv4/dsv4.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/text/python_json.h"
#include "tests/lib/text/encode_cases.h"

namespace dsv4 {
namespace {

constexpr int32_t kUnknown = 99;

int32_t RoleOf(absl::string_view role) {
  constexpr absl::string_view kRoles[] = {"",     "system",          "user",     "assistant",
                                          "tool", "latest_reminder", "developer"};
  for (int32_t i = 1; i < static_cast<int32_t>(std::size(kRoles)); ++i) {
    if (kRoles[i] == role) return i;
  }
  return kUnknown;
}

// A recorded list of messages as structs, which point into it.
class StructMessages {
 public:
  explicit StructMessages(const JsonValue& array) {
    for (const JsonValue& message : *array.AsArray()) Add(message);
  }

  const dsv4_message* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  struct Text {
    const char* data;
    uint64_t length;
  };
  Text Keep(std::string text) {
    texts_.push_back(std::move(text));
    return {texts_.back().data(), texts_.back().size()};
  }

  Text JsonOf(const JsonValue* value) {
    if (value == nullptr) return {nullptr, 0};
    std::string json;
    AppendPythonJson(*value, &json);
    return Keep(std::move(json));
  }

  Text StringOf(const JsonValue* value) {
    if (value == nullptr || value->IsNull()) return {nullptr, 0};
    return Keep(*value->AsString());
  }

  // Parts are joined by an empty line; one that is no text is named.
  Text ContentOf(const JsonValue* content) {
    if (content == nullptr || content->AsArray() == nullptr) return StringOf(content);
    std::string joined;
    for (const JsonValue& part : *content->AsArray()) {
      if (&part != &content->AsArray()->front()) joined += "\n\n";
      const std::string type = *part.Find("type")->AsString();
      joined += type == "text" ? *part.Find("text")->AsString() : "[Unsupported " + type + "]";
    }
    return Keep(std::move(joined));
  }

  void AddCall(const JsonValue& from, std::vector<const dsv4_tool_call*>* calls) {
    dsv4_tool_call call = DSV4_TOOL_CALL_INIT;
    const auto set = [](Text text, const char** data, uint64_t* length) {
      *data = text.data;
      *length = text.length;
    };
    set(StringOf(from.Find("id")), &call.id, &call.id_length);
    if (const JsonValue* function = from.Find("function")) {
      set(StringOf(function->Find("name")), &call.name, &call.name_length);
      set(StringOf(function->Find("arguments")), &call.arguments, &call.arguments_length);
    }
    calls_.push_back(call);
    calls->push_back(&calls_.back());
  }

  void Add(const JsonValue& from) {
    dsv4_message message = DSV4_MESSAGE_INIT;
    const auto set = [](Text text, const char** data, uint64_t* length) {
      *data = text.data;
      *length = text.length;
    };
    message.role = RoleOf(*from.Find("role")->AsString());
    set(ContentOf(from.Find("content")), &message.content, &message.content_length);
    set(StringOf(from.Find("reasoning_content")), &message.reasoning, &message.reasoning_length);
    if (const JsonValue* calls = from.Find("tool_calls")) {
      call_lists_.emplace_back();
      for (const JsonValue& call : *calls->AsArray()) AddCall(call, &call_lists_.back());
      message.tool_calls = call_lists_.back().data();
      message.tool_call_count = call_lists_.back().size();
    }
    set(StringOf(from.Find("tool_call_id")), &message.tool_call_id, &message.tool_call_id_length);
    set(JsonOf(from.Find("tools")), &message.tools, &message.tools_length);
    set(JsonOf(from.Find("response_format")), &message.response_format,
        &message.response_format_length);
    set(StringOf(from.Find("task")), &message.task, &message.task_length);
    if (const JsonValue* wo_eos = from.Find("wo_eos")) message.wo_eos = *wo_eos->AsBool();
    messages_.push_back(message);
    pointers_.push_back(&messages_.back());
  }

  std::deque<std::string> texts_;
  std::deque<dsv4_tool_call> calls_;
  std::deque<std::vector<const dsv4_tool_call*>> call_lists_;
  std::deque<dsv4_message> messages_;
  std::vector<const dsv4_message*> pointers_;
};

// The field of the recorded conversation that the published encoder errs at.
std::string FaultOf(const JsonValue& messages) {
  const std::vector<JsonValue>& list = *messages.AsArray();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = absl::StrCat("messages[", i, "].");
    const std::string& role = *list[i].Find("role")->AsString();
    const JsonValue* content = list[i].Find("content");
    if (RoleOf(role) == kUnknown) return place + "role is 99";
    if (role == "developer" && content->AsString()->empty()) return place + "content";
    if (list[i].Find("task") && *list[i].Find("task")->AsString() == "sing") return place + "task";
    for (const char* key : {"tool_calls", "tools"}) {
      const JsonValue* items = list[i].Find(key);
      for (size_t k = 0; items && k < items->AsArray()->size(); ++k) {
        if ((*items->AsArray())[k].Find("function")) continue;
        const bool is_call = key == absl::string_view("tool_calls");
        return absl::StrCat(place, key, "[", k, "]", is_call ? ".name is NULL" : ".function");
      }
    }
  }
  return "?";
}

struct FreeError {
  void operator()(dsv4_error* error) const { dsv4_error_free(error); }
};
using OwnedError = std::unique_ptr<dsv4_error, FreeError>;

class Renderer {
 public:
  Renderer() {
    const dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    REQUIRE(dsv4_engine_open(kModel, &options, &engine_, nullptr) == DSV4_OK);
    REQUIRE(dsv4_engine_get_tokenizer(engine_, &tokenizer_, nullptr) == DSV4_OK);
    REQUIRE(dsv4_session_open(engine_, nullptr, &session_, nullptr) == DSV4_OK);
  }
  ~Renderer() {
    dsv4_session_close(session_);
    dsv4_engine_close(engine_);
  }
  Renderer(const Renderer&) = delete;

  // What `render(capacity, out, needed, error)` writes, asking for the size first.
  template <class Item, class Render>
  std::vector<Item> Whole(Render&& render) {
    size_t needed = 0, again = 0;
    dsv4_error* error = nullptr;
    status_ = render(static_cast<Item*>(nullptr), size_t{0}, &needed, &error);
    std::vector<Item> out(needed);
    if (status_ == DSV4_OK) status_ = render(out.data(), needed, &again, &error);
    message_ = dsv4_error_get_message(OwnedError(error).get());
    CHECK((status_ != DSV4_OK || again == needed));
    return out;
  }

  std::vector<int32_t> Ids(const StructMessages& messages, const dsv4_chat_options& options) {
    dsv4_error* error = nullptr;
    status_ = dsv4_session_sync_messages(session_, messages.data(), messages.size(), &options,
                                         nullptr, &error);
    message_ = dsv4_error_get_message(OwnedError(error).get());
    const int32_t* tokens = nullptr;
    size_t count = 0;
    REQUIRE(dsv4_session_get_tokens(session_, &tokens, &count, nullptr) == DSV4_OK);
    return {tokens, tokens + count};
  }

  std::vector<int32_t> JsonIds(const std::string& json, const dsv4_chat_options& options) {
    return Whole<int32_t>([&](int32_t* ids, size_t capacity, size_t* needed, dsv4_error** error) {
      return dsv4_chat_render(tokenizer_, json.data(), json.size(), &options, ids, capacity, needed,
                              error);
    });
  }

  std::string JsonText(const std::string& json, const dsv4_chat_options& options) {
    const std::vector<char> text =
        Whole<char>([&](char* out, size_t capacity, size_t* needed, dsv4_error** error) {
          return dsv4_chat_render_text(json.data(), json.size(), &options, out, capacity, needed,
                                       error);
        });
    return {text.begin(), text.end()};
  }

  // Of the last call.
  dsv4_status status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  static constexpr const char* kModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";
  dsv4_engine* engine_ = nullptr;
  const dsv4_tokenizer* tokenizer_ = nullptr;
  dsv4_session* session_ = nullptr;
  dsv4_status status_ = DSV4_OK;
  std::string message_;
};

dsv4_chat_options OptionsOf(const ChatOptions& from) {
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  if (from.mode == ThinkingMode::kThinking) {
    options.thinking =
        from.effort == ReasoningEffort::kMax ? DSV4_THINKING_MAX : DSV4_THINKING_HIGH;
  }
  options.keep_reasoning = !from.drop_thinking;
  options.omit_begin = !from.begin_of_sentence;
  return options;
}

std::string JsonText(const JsonValue& value) {
  std::string json;
  AppendPythonJson(value, &json);
  return json;
}

TEST_CASE("structs say what the recorded conversations say") {
  Renderer renderer;
  const JsonValue empty = JsonValue::FromArray({});
  int prompts = 0, refusals = 0, contexts = 0, structs = 0;
  for (const test::EncodeCase& c : test::EncodeCases()) {
    INFO("case " << c.number);
    const StructMessages messages(*c.messages);
    dsv4_chat_options options = OptionsOf(c.options);
    if (c.prompt == nullptr) {
      ++refusals;
      const std::string fault = FaultOf(*c.messages);
      renderer.Ids(messages, options);
      INFO(fault << ": " << renderer.message());
      CHECK(renderer.status() == DSV4_ERR_INVALID_ARGUMENT);
      CHECK(absl::StartsWith(renderer.message(), fault));
      continue;
    }
    ++prompts;
    const std::string json = JsonText(*c.messages),
                      context = JsonText(c.context ? *c.context : empty);
    const bool has_context = c.context != nullptr && !c.context->AsArray()->empty();
    contexts += has_context;
    if (has_context) {
      options.context = context.data();
      options.context_length = context.size();
    }
    // In JSON, an empty text of arguments is no parameter.
    const std::string expected = absl::StrReplaceAll(
        *c.prompt,
        {{"<｜DSML｜parameter name=\"arguments\" string=\"true\"></｜DSML｜parameter>", ""}});
    const bool as_published = expected == *c.prompt;
    CHECK(renderer.JsonText(json, options) == expected);
    INFO(renderer.message());
    REQUIRE(renderer.status() == DSV4_OK);
    const std::vector<int32_t> from_json = renderer.JsonIds(json, options);
    REQUIRE(renderer.status() == DSV4_OK);
    // A session has all messages itself, and at least one token.
    if (has_context || from_json.empty()) continue;
    const std::vector<int32_t> ids = renderer.Ids(messages, options);
    INFO(renderer.message());
    REQUIRE(renderer.status() == DSV4_OK);
    CHECK((ids == from_json) == as_published);
    ++structs;
  }
  CHECK(structs > 200);
  CHECK(prompts == 268);
  CHECK(refusals == 32);
  CHECK(contexts > 20);
}

}  // namespace
}  // namespace dsv4
