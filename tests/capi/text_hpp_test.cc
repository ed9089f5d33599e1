// SPDX-License-Identifier: Apache-2.0
// <dsv4/tokenizer.hpp>, <dsv4/chat.hpp> and <dsv4/parser.hpp>: without an engine.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/hpp_expect.h"

namespace {

#define BAR "\xef\xbd\x9c"
#define BOS "<" BAR "begin\xe2\x96\x81of\xe2\x96\x81sentence" BAR ">"
#define EOS "<" BAR "end\xe2\x96\x81of\xe2\x96\x81sentence" BAR ">"
#define USER "<" BAR "User" BAR ">"
#define ASSISTANT "<" BAR "Assistant" BAR ">"
#define DSML BAR "DSML" BAR

using Ids = std::vector<int32_t>;

// As the HF library gives them: gates.json.
const char kText[] = "The capital of Russia is Moscow.";
const Ids kIds = {278, 581, 299, 1866, 280, 672, 820, 69, 301, 16};

TEST_CASE("hpp: text to tokens and back") {
  dsv4::Tokenizer tokenizer(kModel);
  CHECK(tokenizer.Encode(kText) == kIds);
  CHECK(tokenizer.Decode(kIds) == kText);
  CHECK(tokenizer.Encode("").empty());
  CHECK(tokenizer.Decode({}).empty());
  CHECK(tokenizer.vocab_size() == 2048);
  CHECK(tokenizer.Encode("</think>", DSV4_ENCODE_ADDED_TOKENS) ==
        Ids{tokenizer.AddedToken("</think>")});
  CHECK(tokenizer.Encode("</think>").size() > 1);
  CHECK(tokenizer.AddedToken("<none>") == -1);
  CHECK(tokenizer.TokenBytes(tokenizer.AddedToken("</think>")) == "</think>");
  // More tokens than half the bytes, and more bytes than eight a token.
  std::string odd;
  for (int i = 0; i < 100; ++i) odd += "\xf0\x9f\x9c\x81";
  CHECK(tokenizer.Decode(tokenizer.Encode(odd)) == odd);
  CHECK(tokenizer.Encode(odd).size() > odd.size() / 2 + 16);
  const Ids markers(50, tokenizer.AddedToken(BOS));
  CHECK(tokenizer.Decode(markers).size() == 50 * (sizeof BOS - 1));

  REQUIRE_ERROR(tokenizer.Encode("a\xff"), DSV4_ERR_INVALID_ARGUMENT, "byte 1");
  REQUIRE_ERROR(tokenizer.TokenBytes(4000), DSV4_ERR_INVALID_ARGUMENT, "4000");
  REQUIRE_ERROR(tokenizer.Decode({4000}), DSV4_ERR_INVALID_ARGUMENT, "4000");
  REQUIRE_ERROR(dsv4::Tokenizer("/nonexistent"), DSV4_ERR_NOT_FOUND, "/nonexistent");

  dsv4::Tokenizer moved = std::move(tokenizer);
  CHECK(moved.Encode(kText) == kIds);
  REQUIRE_ERROR(tokenizer.Encode(kText), DSV4_ERR_INVALID_ARGUMENT, "tokenizer is NULL");
  tokenizer = std::move(moved);
  CHECK(tokenizer.Encode(kText) == kIds);
}

// The tokens of a session that was synced to the messages, as text.
std::string PromptOf(const dsv4::Engine& engine, const std::vector<dsv4::Message>& messages,
                     const dsv4::ChatOptions& options = {}) {
  dsv4::Conversation chat(engine);
  chat.Sync(messages, options);
  return engine.tokenizer().Decode(chat.session().tokens());
}

// All fields; the text follows from the published format (docs/model.md).
TEST_CASE("hpp: messages to prompts") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Message asks{DSV4_ROLE_ASSISTANT, "", "R"};
  asks.tool_calls = {{"c", "f", R"({"a": [1,2]})"}, {"d", "g", "{}"}};
  dsv4::Message first{DSV4_ROLE_TOOL, "7"}, second{DSV4_ROLE_TOOL, "8"};
  first.tool_call_id = "c";
  second.tool_call_id = "d";
  const std::vector<dsv4::Message> messages = {{DSV4_ROLE_USER, "Hi"}, asks, second, first};
  dsv4::ChatOptions options;
  options.thinking = DSV4_THINKING_HIGH;
  options.keep_reasoning = true;
  const std::string text = PromptOf(engine, messages, options);
  CHECK(text == BOS USER
        "Hi" ASSISTANT "<think>R</think>\n\n<" DSML "tool_calls>\n<" DSML
        "invoke name=\"f\">\n<" DSML "parameter name=\"a\" string=\"false\">[1, 2]</" DSML
        "parameter>\n</" DSML "invoke>\n<" DSML "invoke name=\"g\">\n\n</" DSML "invoke>\n</" DSML
        "tool_calls>" EOS USER
        "<tool_result>7</tool_result>\n\n<tool_result>8</tool_result>" ASSISTANT "<think>");
  options.omit_begin = true;
  CHECK(BOS + PromptOf(engine, messages, options) == text);
  options.omit_begin = false;
  options.context = "[]";
  CHECK(PromptOf(engine, {{DSV4_ROLE_USER, "Hi"}}, options) == BOS USER "Hi" ASSISTANT "<think>");

  // What is left of the fields: each where it belongs, or refused by its name.
  dsv4::Message message{DSV4_ROLE_ASSISTANT, "Hi"};
  message.wo_eos = true;
  CHECK(PromptOf(engine, {message}) == BOS "Hi");
  message = {DSV4_ROLE_USER, "Hi"};
  message.task = "title";
  CHECK(PromptOf(engine, {message}).find("title") != std::string::npos);
  message = {DSV4_ROLE_SYSTEM, "Hi"};
  message.response_format = R"({"type": "object"})";
  CHECK(PromptOf(engine, {message}).find(R"({"type": "object"})") != std::string::npos);
  message = {DSV4_ROLE_SYSTEM, "Hi"};
  message.tools = "[";
  REQUIRE_ERROR(PromptOf(engine, {message}), DSV4_ERR_CORRUPT, "messages[0].tools");
}

TEST_CASE("hpp: messages as JSON are the same prompt, and may continue a context") {
  const dsv4::Engine engine = OpenBundled();
  const dsv4::Tokenizer tokenizer(kModel);
  const std::string json = R"([{"role": "user", "content": "What is the capital of France?"}])";
  const std::string text = PromptOf(engine, {{DSV4_ROLE_USER, kQuestion}});
  CHECK(dsv4::RenderChatText(json) == text);
  CHECK(tokenizer.Decode(dsv4::RenderChat(tokenizer, json)) == text);
  REQUIRE_ERROR(dsv4::RenderChat(tokenizer, "[{"), DSV4_ERR_CORRUPT, "line 1");
  dsv4::ChatOptions options;
  options.context = R"([{"role": "system", "content": "Be brief."}])";
  CHECK(BOS + dsv4::RenderChatText(json, options) == text);
  dsv4::Conversation chat(engine);
  REQUIRE_ERROR(chat.SyncJson(json, options), DSV4_ERR_INVALID_ARGUMENT, "options.context");
}

// The bundled model with the file by which 0731's encoder is known.
TEST_CASE("hpp: a folder's encoder writes its prompts") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("dsv4_encoder_" + std::to_string(getpid()));
  fs::create_directories(folder / "encoding");
  for (const auto& file : fs::directory_iterator(kModel))
    fs::copy(file.path(), folder / file.path().filename());
  std::ofstream(folder / "encoding" / "encoding_dsv4.py") << "MAX = 'Beyond maximum'\n";
  const std::string messages = R"([{"role": "user", "content": "What is the capital of France?"}])";
  dsv4::ChatOptions options;
  const auto begins = [&](const Ids& ids, const char* words) {
    const std::string text = dsv4::Tokenizer(kModel).Decode(ids);
    return text.find(std::string(BOS "Reasoning Effort: ") + words) == 0;
  };
  {
    const dsv4::Tokenizer tokenizer(folder.string()), file((folder / "tokenizer.json").string());
    dsv4::EngineOptions engine_options;
    engine_options.context_tokens = 512;
    const dsv4::Engine engine(folder.string(), engine_options);
    CHECK(
        dsv4::Inspect(folder.string())
            .find(
                R"("chat_encoder": {"name": "0731", "file": "encoding/encoding_dsv4.py", "guess": null})") !=
        std::string::npos);
    CHECK(
        dsv4::Inspect(kModel).find(
            R"("chat_encoder": {"name": "preview", "file": null, "guess": "config.json has no)") !=
        std::string::npos);
    CHECK(engine.identity().chat_encoder == "0731");
    CHECK(engine.identity().chat_encoder_guess.empty());
    const auto prompt = [&] {
      dsv4::Conversation chat(engine);
      chat.Sync({{DSV4_ROLE_USER, kQuestion}}, options);
      const auto tokens = chat.session().tokens();
      return Ids(tokens.begin(), tokens.end());
    };
    for (const auto& [thinking, words] :
         {std::pair(DSV4_THINKING_HIGH, "Absolute"), std::pair(DSV4_THINKING_MAX, "Beyond")}) {
      options.thinking = thinking;
      CHECK(begins(dsv4::RenderChat(tokenizer, messages, options), words));
      CHECK(begins(dsv4::RenderChat(file, messages, options), words));
      CHECK(begins(dsv4::RenderChat(engine.tokenizer(), messages, options), words));
      CHECK(begins(prompt(), words));
    }
    // The option overrides the folder.
    options.encoder = DSV4_CHAT_ENCODER_PREVIEW;
    CHECK(begins(prompt(), "Absolute"));
    CHECK(begins(dsv4::RenderChat(tokenizer, messages, options), "Absolute"));
  }
  fs::remove_all(folder);
}

// One line an event.
std::string Lines(const std::vector<dsv4::Event>& events) {
  std::string lines;
  for (const dsv4::Event& event : events) {
    lines += std::to_string(event.type) + " " + std::to_string(event.call) + " " + event.text;
    if (!event.id.empty()) lines += " #" + event.id;
    if (!event.reason.empty()) lines += " reason";
    if (event.repaired) lines += " repaired";
    if (event.incomplete) lines += " incomplete";
    if (event.stopped) lines += " stopped";
    lines += "\n";
  }
  return lines;
}

TEST_CASE("hpp: a completion taken apart while it streams") {
  dsv4::Parser parser(DSV4_THINKING_HIGH, "x-");
  CHECK(Lines(parser.Feed("Hm.</thi")) == "1 -1 Hm.\n");
  CHECK(Lines(parser.Feed("nk>Hi")) == "2 -1 Hi\n");
  const std::string call = "\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
                           "parameter name=\"a\" string=\"false\">Paris</" DSML
                           "parameter>\n</" DSML "invoke>\n</" DSML "tool_calls>" EOS;
  std::vector<dsv4::Event> events = parser.Feed(call);
  for (dsv4::Event& event : parser.End()) events.push_back(event);
  const std::string lines = Lines(events);
  CHECK(lines.find("3 0 f #x-0\n") == 0);
  CHECK(lines.find("5 0  repaired\n7 -1  stopped\n") != std::string::npos);

  // As new; a marker without a place, and an end within markup.
  events = parser.Feed("a</think>b<think>c\n\n<" DSML "tool_calls>\n<" DSML "inv");
  for (dsv4::Event& event : parser.End()) events.push_back(event);
  CHECK(Lines(events).find("6 -1 <think> reason\n") != std::string::npos);
  CHECK(Lines(events).find(" incomplete\n") != std::string::npos);

  REQUIRE_ERROR(dsv4::Parser(9), DSV4_ERR_INVALID_ARGUMENT, "thinking is 9");
}

}  // namespace
