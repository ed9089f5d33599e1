// SPDX-License-Identifier: Apache-2.0
// What requests have that the server does not know or support: what is left out, what is refused,
// and what --strict-fields refuses, in each API. Also names of models, and responses with state.
#include <filesystem>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kChat[] = "/v1/chat/completions", kMessages[] = "/v1/messages",
               kResponses[] = "/v1/responses";
constexpr char kQuestion[] = "What is the capital of France?";
constexpr char kAnswer[] = "The capital of France is Paris.";

// A request with the recorded question, and `more`.
Json Asking(const std::string& path, const Json& more) {
  Json request = {{"temperature", 0}};
  if (path == kResponses) {
    request["input"] = kQuestion;
  } else {
    request["messages"] = Json::array({{{"role", "user"}, {"content", kQuestion}}});
  }
  if (path == kMessages) request["max_tokens"] = 60;
  request.update(more);
  return request;
}

std::string TextOf(const std::string& path, const Json& answer) {
  std::string text;
  if (path == kChat) return answer["choices"][0]["message"].value("content", "");
  if (path == kMessages) {
    for (const Json& block : answer["content"]) text += block.value("text", "");
  } else {
    for (const Json& item : answer["output"]) {
      if (item["type"] == "message") text += item["content"][0].value("text", "");
    }
  }
  return text;
}

// One per process, with an alias.
const ServerProgram& StrictServer() {
  static const ServerProgram server(
      {"--strict-fields", "--served-model-name", "acme/tiny", "--served-model-name", "small"});
  return server;
}

}  // namespace

TEST_CASE("What asks for nothing that changes the answer is left out") {
  const struct {
    const char* path;
    const char* more;
  } kCases[] = {
      {kChat, R"({"skip_special_tokens": true, "num_ctx": 4096, "verbosity": "low"})"},
      {kChat,
       R"({"made_up": {"a": [1]}, "typical_p": 1, "mirostat": 0, "use_beam_search": false})"},
      {kChat, R"({"store": true, "modalities": ["text"], "prediction": {"type": "content"}})"},
      {kChat, R"({"functions": [], "function_call": "auto", "chat_template_kwargs": {"x": 1}})"},
      {kChat, R"({"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]})"},
      {kChat, R"({"messages": [{"role": "user", "type": "text", "id": "m", "name": "n", "x": 1,
                  "content": [{"type": "text", "text": "What is the capital of France?",
                               "cache_control": {"type": "ephemeral"}}]}]})"},
      {kMessages, R"({"context_management": {"edits": []}, "betas": ["x"], "made_up": 1})"},
      {kMessages, R"({"speed": "standard", "inference_geo": "us", "service_tier": "auto"})"},
      {kMessages, R"({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})"},
      {kMessages, R"({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}})"},
      {kResponses, R"({"text": {"verbosity": "low"}, "made_up": 1, "truncation": "auto"})"},
      {kResponses, R"({"include": ["web_search_call.action.sources"], "max_tool_calls": 3})"},
      {kResponses, R"({"tools": [{"type": "web_search"}, {"type": "custom", "name": "p"}]})"},
      {kResponses, R"({"background": false, "conversation": null, "prompt": null})"},
  };
  for (const auto& [path, more] : kCases) {
    INFO(path << " " << more);
    const Json answer = SharedServer().Post(path, Asking(path, Json::parse(more)));
    CHECK(TextOf(path, answer) == kAnswer);
  }
}

TEST_CASE("What would change the answer is refused in words that clients know") {
  const struct {
    const char* path;
    const char* more;
    const char* message;
  } kCases[] = {
      {kChat, R"({"guided_json": {"type": "object"}})", "guided_json is not supported"},
      {kChat, R"({"typical_p": 0.5})", "typical_p is not supported"},
      {kChat, R"({"use_beam_search": true})", "use_beam_search is not supported"},
      {kChat, R"({"functions": [{"name": "f"}]})", "functions is not supported"},
      {kChat, R"({"modalities": ["text", "audio"]})", "modalities is not supported"},
      {kChat, R"({"tools": [{"type": "custom", "custom": {"name": "x"}}]})",
       "custom tools are not supported"},
      {kChat, R"({"messages": [{"role": "function", "name": "f", "content": "1"}]})",
       "the role \"function\" is not supported"},
      {kChat, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
                  "content": null, "function_call": {"name": "f", "arguments": "{}"}}]})",
       "function_call is not supported"},
      {kChat,
       R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
                  "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f",
                  "arguments": "{}"}}]}]})",
       "results are missing"},
      {kChat, R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content":
                  "{"}], "response_format": {"type": "json_object"}})",
       "with a last message of the assistant is not supported"},
      {kMessages, R"({"mcp_servers": [{"type": "url", "url": "x", "name": "y"}]})",
       "mcp_servers is not supported"},
      {kMessages, R"({"messages": [{"role": "wizard", "content": "a"}]})",
       "the role \"wizard\" is not supported"},
      {kResponses, R"({"background": true})", "background is not supported"},
      {kResponses, R"({"input": [{"type": "item_reference", "id": "x"}]})",
       "\"item_reference\" is not supported"},
  };
  for (const auto& [path, more, message] : kCases) {
    const Json answer = SharedServer().Post(path, Asking(path, Json::parse(more)), 400);
    INFO(path << " " << more << " " << answer.dump());
    CHECK(answer["error"]["message"].get<std::string>().find(message) != std::string::npos);
  }
}

TEST_CASE("--strict-fields refuses what is not known") {
  const struct {
    const char* path;
    const char* more;
    const char* message;
  } kCases[] = {
      {kChat, R"({"num_ctx": 1})", "num_ctx is not supported"},
      {kChat, R"({"messages": [{"role": "user", "content": "a", "mood": 1}]})", "messages[0].mood"},
      {kChat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0].type: \"image_url\" is not supported"},
      {kChat, R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {kMessages, R"({"made_up": 1})", "made_up is not supported"},
      {kMessages, R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type: \"image\""},
      {kMessages, R"({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})",
       "tools[0].type"},
      {kResponses, R"({"made_up": 1})", "made_up is not supported"},
      {kResponses, R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {kResponses, R"({"input": [{"type": "compaction"}]})", "input[0].type"},
  };
  for (const auto& [path, more, message] : kCases) {
    const Json answer = StrictServer().Post(path, Asking(path, Json::parse(more)), 400);
    INFO(path << " " << more << " " << answer.dump());
    CHECK(answer["error"]["message"].get<std::string>().find(message) != std::string::npos);
  }
}

TEST_CASE("Content that is no text becomes a text in its place") {
  const auto tokens = [](const char* content) {
    return SharedServer().Post(
        "/tokenize",
        {{"messages",
          Json::array({{{"role", "user"}, {"content", Json::parse(content)}}})}})["tokens"];
  };
  const char* const kImage = R"("[image left out: the model reads text only]")";
  CHECK(tokens(R"([{"type": "image_url", "image_url": {"url": "data:,"}}])") == tokens(kImage));
  CHECK(tokens(R"([{"type": "input_image", "image_url": "data:,"}])") == tokens(kImage));
  CHECK(tokens(R"([{"type": "input_file", "filename": "a.pdf", "file_data": "x"}])") ==
        tokens(R"("[file a.pdf left out: the model reads text only]")"));
  CHECK(
      tokens(R"([{"type": "document", "title": "T", "source": {"type": "text", "data": "d"}}])") ==
      tokens(R"("T\nd")"));
  CHECK(tokens(R"(["a"])") == tokens(R"([{"text": "a"}])"));
}

TEST_CASE("Messages of the system may stand anywhere, and texts that were cut are whole again") {
  const auto tokens = [](const char* messages) {
    return SharedServer().Post("/tokenize", {{"messages", Json::parse(messages)}})["tokens"];
  };
  // In the format only the end of the user's messages opens the assistant's turn.
  CHECK(tokens(R"([{"role": "user", "content": "q"}, {"role": "system", "content": "s"}])") ==
        tokens(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}])"));
  CHECK(tokens(R"([{"role": "user", "content": "q"}, {"role": "system", "content": "s"},
                   {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}])") ==
        tokens(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                   {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}])"));
  CHECK(tokens(R"([{"role": "system", "content": "s"}])") ==
        tokens(R"([{"role": "system", "content": "s"}, {"role": "user", "content": ""}])"));
  const auto cut = SharedServer().Client().Post(
      "/tokenize", R"({"prompt": "a\ud83d b\\ud83d \ud83d\ude00"})", "application/json");
  REQUIRE(cut);
  CHECK(Json::parse(cut->body)["tokens"] ==
        SharedServer().Post("/tokenize",
                            {{"prompt", "a\xEF\xBF\xBD b\\ud83d \xF0\x9F\x98\x80"}})["tokens"]);
}

TEST_CASE("An answer that the client has begun is continued") {
  const Json begun = Json::array({{{"role", "user"}, {"content", kQuestion}},
                                  {{"role", "assistant"}, {"content", "The capital"}}});
  for (const char* thinking : {"disabled", "enabled"}) {
    const Json more = {{"messages", begun}, {"thinking", {{"type", thinking}}}};
    CHECK(TextOf(kChat, SharedServer().Post(kChat, Asking(kChat, more))) == " of France is Paris.");
    CHECK(TextOf(kMessages, SharedServer().Post(kMessages, Asking(kMessages, more))) ==
          " of France is Paris.");
  }
  CHECK(
      TextOf(kResponses, SharedServer().Post(kResponses, Asking(kResponses, {{"input", begun}}))) ==
      " of France is Paris.");
}

TEST_CASE("Reasoning is left out of answers on request") {
  Json request = Asking(kChat, {{"reasoning", {{"effort", "high"}}}});
  CHECK(SharedServer().Post(kChat, request)["choices"][0]["message"].contains("reasoning_content"));
  request["reasoning"]["exclude"] = true;
  const Json message = SharedServer().Post(kChat, request)["choices"][0]["message"];
  CHECK(!message.contains("reasoning_content"));
  CHECK(!message["content"].get<std::string>().empty());
}

TEST_CASE("Tools and a schema of the answer: a call or JSON, and what is not enforced is said") {
  Json request = Asking(kChat, Json::parse(R"({"max_tokens": 80, "tools": [{"type": "function",
      "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city":
      {"type": "string", "pattern": "(a)\\1"}}, "required": ["city"]}}}],
      "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true,
      "schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}, "t": {"type": "array",
      "uniqueItems": true, "items": {"type": "string", "maxLength": 3}, "maxItems": 2}},
      "required": ["n"], "additionalProperties": false}}}})"));
  const auto post = [&] {
    const auto answer = SharedServer().Client().Post(kChat, request.dump(), "application/json");
    REQUIRE(answer);
    return *answer;
  };
  for (const char* effort : {"none", "low"}) {
    request["reasoning_effort"] = effort;
    request["tool_choice"] = "none";
    httplib::Response answer = post();
    REQUIRE(answer.status == 200);
    CHECK(answer.get_header_value("Dsv4-Unenforced") == "schema#/properties/t/uniqueItems");
    const Json choice = Json::parse(answer.body)["choices"][0];
    if (choice["finish_reason"] == "stop") {
      const Json value = Json::parse(choice["message"]["content"].get<std::string>());
      CHECK((value["n"] == 1 || value["n"] == 2));
    }
    request["tool_choice"] = "auto";
    answer = post();
    CHECK(answer.get_header_value("Dsv4-Unenforced") ==
          "schema#/properties/t/uniqueItems, tools#/0/function/parameters/properties/city/pattern");
    const Json message = Json::parse(answer.body)["choices"][0]["message"];
    if (!message.contains("tool_calls")) CHECK(message["content"].get<std::string>().find('{') < 3);
    for (const Json& chunk : Stream(SharedServer(), kChat, request))
      CHECK(chunk.contains("choices"));
  }
  // A strict function is refused for what its schema has, except what clients check.
  request["tools"][0]["function"]["strict"] = true;
  CHECK(post().status == 400);
  CHECK(post().body.find("parameters/properties/city/pattern") != std::string::npos);
  request["tools"][0]["function"]["parameters"]["properties"]["city"] = {{"type", "string"},
                                                                         {"format", "mine"}};
  CHECK(post().status == 200);
}

TEST_CASE("The model is found by its names") {
  const ServerProgram& server = StrictServer();
  CHECK(server.Get("/v1/models")["data"].size() == 2);
  CHECK(server.Get("/v1/models/acme/tiny")["id"] == "acme/tiny");
  CHECK(server.Get("/v1/models/acme%2Ftiny")["object"] == "model");
  CHECK(server.Get("/v1/models/small")["id"] == "small");
  CHECK(server.Client().Get("/v1/models/other")->status == 404);
  CHECK(server.Post(kChat, Asking(kChat, {{"model", "small"}}))["model"] == "acme/tiny");
  server.Post(kChat, Asking(kChat, {{"model", "other"}}), 404);
  const Json info = server.Get("/tokenizer_info");
  CHECK(info["eos_token"] ==
        "<\xEF\xBD\x9C"
        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>");
  CHECK(server.Post("/tokenize",
                    {{"prompt", info["eos_token"]}, {"add_special_tokens", false}})["tokens"] ==
        Json::array({info["eos_token_id"]}));
}

TEST_CASE("A snapshot of the hub is served as OWNER/NAME, and any name may be asked for") {
  namespace fs = std::filesystem;
  const fs::path cache = fs::temp_directory_path() /
                         ("dsv4-hub-" + std::to_string(SharedServer().pid())) /
                         "models--acme--tiny-model";
  fs::create_directories(cache / "snapshots");
  fs::create_directory_symlink(DSV4_SOURCE_DIR "/models/dsv4-tiny",
                               cache / "snapshots" / "0123abcd");
  {
    const ServerProgram server({"--any-model"}, (cache / "snapshots" / "0123abcd" / "").string());
    CHECK(server.Get("/v1/models")["data"][0]["id"] == "acme/tiny-model");
    CHECK(server.Post(kChat, Asking(kChat, {{"model", "claude-haiku-4-5"}}))["model"] ==
          "acme/tiny-model");
  }
  // As is what lies in a snapshot, such as a GGUF file in a folder of its quantization.
  fs::create_directories(cache / "snapshots" / "4567cdef");
  fs::create_directory_symlink(DSV4_SOURCE_DIR "/models/dsv4-tiny",
                               cache / "snapshots" / "4567cdef" / "Q4");
  {
    const ServerProgram server({}, (cache / "snapshots" / "4567cdef" / "Q4").string());
    CHECK(server.Get("/v1/models")["data"][0]["id"] == "acme/tiny-model");
  }
  fs::remove_all(cache.parent_path());
}

TEST_CASE("Responses are kept, continued, read and deleted") {
  const ServerProgram& server = SharedServer();
  const Json first = server.Post(
      kResponses, Asking(kResponses, {{"instructions", "You answer briefly."}, {"user", "u"}}));
  CHECK(first["store"] == true);
  const std::string id = first["id"];
  CHECK(server.Get("/v1/responses/" + id) == first);
  const Json items = server.Get("/v1/responses/" + id + "/input_items");
  REQUIRE(items["data"].size() == 1);
  CHECK(items["data"][0]["content"][0]["text"] == kQuestion);
  // The same conversation as messages of one request, without the first one's instructions.
  const Json next = {
      {"temperature", 0}, {"previous_response_id", id}, {"input", "What is the capital of Italy?"}};
  const Json second = server.Post(kResponses, next);
  CHECK(second["previous_response_id"] == id);
  const Json whole = server.Post(
      kResponses,
      {{"temperature", 0},
       {"store", false},
       {"input", Json::array({{{"role", "user"}, {"content", kQuestion}},
                              {{"role", "assistant"}, {"content", TextOf(kResponses, first)}},
                              {{"role", "user"}, {"content", "What is the capital of Italy?"}}})}});
  CHECK(TextOf(kResponses, second) == TextOf(kResponses, whole));
  CHECK(second["usage"]["input_tokens"] == whole["usage"]["input_tokens"]);
  // The first one's session goes on: everything but the end of its answer is computed.
  const auto cached = [](const Json& response) {
    return response["usage"]["input_tokens_details"]["cached_tokens"].get<int>();
  };
  const Json third = server.Post(kResponses, {{"temperature", 0},
                                              {"previous_response_id", second["id"]},
                                              {"input", "What is the capital of France?"}});
  CHECK(cached(third) >= second["usage"]["total_tokens"].get<int>() - 1);
  // Two requests may continue the same response.
  CHECK(TextOf(kResponses, server.Post(kResponses, next)) == TextOf(kResponses, second));
  CHECK(server.Client().Get("/v1/responses/" + whole["id"].get<std::string>())->status == 404);
  // Streams are kept, too.
  const Json streamed = Events(server, kResponses, next).back()["response"];
  CHECK(server.Get("/v1/responses/" + streamed["id"].get<std::string>()) == streamed);
  CHECK(server.Client().Delete("/v1/responses/" + id)->status == 200);
  CHECK(server.Client().Get("/v1/responses/" + id)->status == 404);
  const Json error = server.Post(kResponses, next, 400)["error"];
  CHECK(error["code"] == "previous_response_not_found");
}

TEST_CASE("The results of calls continue a response") {
  Json request = {{"temperature", 0}, {"tool_choice", "required"}, {"input", "Weather in Paris?"}};
  request["tools"] = Json::parse(R"([{"type": "function", "name": "get_weather", "parameters":
      {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}},
       "required": ["city"]}}])");
  const Json first = SharedServer().Post(kResponses, request);
  const Json call = first["output"].back();
  REQUIRE(call["type"] == "function_call");
  request["previous_response_id"] = first["id"];
  request["tool_choice"] = "auto";
  request["max_output_tokens"] = 20;
  request["input"] = Json::array(
      {{{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "sunny"}}});
  const Json second = SharedServer().Post(kResponses, request);
  CHECK(second["usage"]["input_tokens"] > first["usage"]["input_tokens"]);
  CHECK(second["usage"]["input_tokens_details"]["cached_tokens"] >=
        first["usage"]["total_tokens"].get<int>() - 1);
}

}  // namespace dsv4::test
