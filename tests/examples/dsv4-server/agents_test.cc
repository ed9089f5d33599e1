// SPDX-License-Identifier: Apache-2.0
// Requests as Claude Code and Codex send them: requests/*.json have the fields, tools and contents
// of their published clients, with texts of our own. Whole loops: a call, its result, an interrupt,
// a compaction. What the bundled model says is not checked, only that it is asked.
#include <fstream>
#include <set>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

Json Request(const std::string& name) {
  return Json::parse(std::ifstream(
      std::string(DSV4_SOURCE_DIR "/tests/examples/dsv4-server/requests/") + name + ".json"));
}

Json Text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

}  // namespace

TEST_CASE("Claude Code's requests are answered through a loop of tools") {
  const ServerProgram& server = SharedServer();
  Json request = Request("claude_code");
  CHECK(Events(server, "/v1/messages?beta=true", request).back()["type"] == "message_stop");

  Json count = request;
  for (const char* name : {"max_tokens", "stream", "temperature", "metadata"}) count.erase(name);
  const Json counted = server.Post("/v1/messages/count_tokens?beta=true", count);
  CHECK(counted["input_tokens"] > 100);

  // It must call, so that there is a result to send.
  request["stream"] = false;
  request["temperature"] = 0;
  request["max_tokens"] = 200;
  request["thinking"] = {{"type", "disabled"}};
  request["tool_choice"] = {{"type", "tool"}, {"name", "Read"}};
  const Json message = server.Post("/v1/messages?beta=true", request);
  REQUIRE(message["stop_reason"] == "tool_use");
  const Json call = message["content"].back();
  CHECK(call["name"] == "Read");
  request.erase("tool_choice");
  // An image as the result, then a message of the system in the middle of the conversation.
  request["messages"].push_back({{"role", "assistant"}, {"content", message["content"]}});
  Json image = {{"type", "image"},
                {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", "AA=="}}}};
  request["messages"].push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"},
                                 {"tool_use_id", call["id"]},
                                 {"content", Json::array({image})},
                                 {"cache_control", {{"type", "ephemeral"}}}}})}});
  request["messages"].push_back({{"role", "system"}, {"content", "The list of skills is empty."}});
  request["max_tokens"] = 16;
  CHECK(server.Post("/v1/messages", request)["type"] == "message");
  // The user interrupts a turn that thought, searched, and called.
  request["messages"].push_back(
      {{"role", "assistant"},
       {"content", Json::array({{{"type", "thinking"}, {"thinking", "Hm."}, {"signature", "s"}},
                                {{"type", "redacted_thinking"}, {"data", "x"}},
                                {{"type", "server_tool_use"},
                                 {"id", "srvtoolu_1"},
                                 {"name", "web_search"},
                                 {"input", {{"query", "q"}}}},
                                {{"type", "web_search_tool_result"},
                                 {"tool_use_id", "srvtoolu_1"},
                                 {"content", Json::array()}},
                                Text("I look."),
                                {{"type", "tool_use"},
                                 {"id", "toolu_2"},
                                 {"name", "Bash"},
                                 {"input", {{"command", "ls"}}},
                                 {"caller", {{"type", "direct"}}}}})}});
  request["messages"].push_back(
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"},
                                 {"tool_use_id", "toolu_2"},
                                 {"content", "interrupted"},
                                 {"is_error", true}},
                                Text("[Request interrupted by user for tool use]"),
                                Text("Go on.")})}});
  CHECK(server.Post("/v1/messages", request)["type"] == "message");
  // Compaction: the conversation, and a wish without tools.
  request["messages"].push_back({{"role", "assistant"}, {"content", "Done."}});
  request["messages"].push_back({{"role", "user"}, {"content", "Summarize the conversation."}});
  request["tool_choice"] = {{"type", "none"}};
  const Json summary = server.Post("/v1/messages", request);
  for (const Json& block : summary["content"]) CHECK(block["type"] == "text");
}

TEST_CASE("Codex's requests are answered through a loop of tools") {
  const ServerProgram& server = SharedServer();
  Json request = Request("codex");
  CHECK(Events(server, "/v1/responses", request).back()["response"]["object"] == "response");

  request["stream"] = false;
  request["temperature"] = 0;
  request["max_output_tokens"] = 200;
  request["reasoning"] = {{"effort", "none"}, {"summary", nullptr}};
  request["tool_choice"] = "required";
  const Json response = server.Post("/v1/responses", request);
  REQUIRE(response["status"] == "completed");
  const Json call = response["output"].back();
  REQUIRE(call["type"] == "function_call");
  request["tool_choice"] = "auto";
  request["max_output_tokens"] = 16;
  Json& input = request["input"];
  for (const Json& item : response["output"]) input.push_back(item);
  input.push_back({{"type", "function_call_output"},
                   {"call_id", call["call_id"]},
                   {"output", Json::array({{{"type", "input_text"}, {"text", "a.cc"}},
                                           {{"type", "input_image"}, {"image_url", "data:,"}}})}});
  CHECK(server.Post("/v1/responses", request)["object"] == "response");
  // What another model and OpenAI's servers did before, an interrupt, and a compaction.
  const char* const items[] = {
      R"({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": null,
          "encrypted_content": "gAAA"})",
      R"({"type": "custom_tool_call", "call_id": "call_p", "name": "apply_patch", "input": "x",
          "status": "completed"})",
      R"({"type": "custom_tool_call_output", "call_id": "call_p", "output": "ok"})",
      R"({"type": "local_shell_call", "call_id": "call_s", "status": "completed",
          "action": {"type": "exec", "command": ["ls"]}})",
      R"({"type": "function_call_output", "call_id": "call_s", "output": "aborted by user"})",
      R"({"type": "web_search_call", "status": "completed", "action": {"type": "search"}})",
      R"({"type": "compaction", "encrypted_content": "gAAA"})",
      R"({"type": "message", "role": "user", "content": [{"type": "input_text",
          "text": "<turn_aborted>The user interrupted.</turn_aborted>"}]})",
      R"({"type": "message", "role": "user", "content": [{"type": "input_text",
          "text": "Create a handoff summary for another model."}]})",
  };
  for (const char* item : items) input.push_back(Json::parse(item));
  CHECK(server.Post("/v1/responses", request)["object"] == "response");
}

TEST_CASE("Ids differ between answers and conversations, and those of clients are kept") {
  const ServerProgram& server = SharedServer();
  Json request = RequestOf(Recorded("tool_call")[0]);
  request["tool_choice"] = "required";
  std::set<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    const Json answer = server.Post("/v1/chat/completions", request);
    CHECK(ids.insert(answer["id"]).second);
    for (const Json& call : answer["choices"][0]["message"]["tool_calls"])
      CHECK(ids.insert(call["id"]).second);
  }
  // A stream gives the same id to each piece of a call.
  std::set<std::string> streamed;
  for (const Json& chunk : Stream(server, "/v1/chat/completions", request)) {
    for (const Json& call : chunk["choices"][0]["delta"].value("tool_calls", Json::array())) {
      if (call.contains("id")) streamed.insert(call["id"]);
    }
  }
  CHECK(!streamed.empty());
  for (const std::string& id : streamed) CHECK(ids.insert(id).second);
  // Results find their calls by the client's ids, in whichever order they come.
  const auto tokens_of = [&](const Json& first, const Json& second) {
    Json calls = Json::array();
    for (const char* id : {"mine-1", "mine-2"})
      calls.push_back(
          {{"id", id}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}});
    Json messages =
        Json::array({{{"role", "user"}, {"content", "a"}},
                     {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}},
                     first,
                     second});
    return server.Post("/tokenize", {{"messages", messages}})["tokens"];
  };
  const auto result = [](const char* id) {
    return Json{{"role", "tool"}, {"tool_call_id", id}, {"content", std::string("of ") + id}};
  };
  CHECK(tokens_of(result("mine-1"), result("mine-2")) ==
        tokens_of(result("mine-2"), result("mine-1")));
}

}  // namespace dsv4::test
