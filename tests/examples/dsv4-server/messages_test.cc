// SPDX-License-Identifier: Apache-2.0
// Anthropic's /v1/messages. What the model says is recorded in models/dsv4-tiny/gates.json.
#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kMessages[] = "/v1/messages";

// A recorded request in Anthropic's form.
Json MessagesOf(const Json& recorded) {
  Json request = {{"model", "dsv4-tiny"}, {"max_tokens", 300}, {"temperature", 0}};
  Json messages = Json::array();
  for (const Json& message : recorded["messages"]) {
    if (message.contains("tools")) {
      for (const Json& tool : message["tools"]) {
        Json ours = {{"name", tool["function"]["name"]}};
        for (const auto& [key, value] : tool["function"].items())
          ours[key == "parameters" ? "input_schema" : key] = value;
        request["tools"].push_back(ours);
      }
    }
    const std::string text = message.contains("content") && message["content"].is_string()
                                 ? message["content"].get<std::string>()
                                 : "";
    if (message["role"] == "system") {
      if (!text.empty()) request["system"] = text;
    } else if (message["role"] == "tool") {
      messages.push_back(
          {{"role", "user"},
           {"content", Json::array({{{"type", "tool_result"},
                                     {"tool_use_id", message.value("tool_call_id", "call_0")},
                                     {"content", text}}})}});
    } else {
      Json blocks = Json::array();
      if (!text.empty()) blocks.push_back({{"type", "text"}, {"text", text}});
      for (const Json& call : message.value("tool_calls", Json::array())) {
        const Json& arguments = call["function"]["arguments"];
        blocks.push_back(
            {{"type", "tool_use"},
             {"id", call.value("id", "call_0")},
             {"name", call["function"]["name"]},
             {"input",
              arguments.is_string() ? Json::parse(arguments.get<std::string>()) : arguments}});
      }
      messages.push_back({{"role", message["role"]}, {"content", blocks}});
    }
  }
  request["messages"] = messages;
  return request;
}

// The message that a client puts together of a stream's events, whose order is checked.
Json Joined(const std::vector<Json>& events) {
  REQUIRE(events.size() >= 3);
  REQUIRE(events[0]["type"] == "message_start");
  Json message = events[0]["message"];
  CHECK(message["content"].empty());
  CHECK(message["stop_reason"].is_null());
  std::string input;
  bool open = false;
  for (size_t i = 1; i + 2 < events.size(); ++i) {
    const Json& event = events[i];
    Json& content = message["content"];
    INFO(event.dump());
    if (event["type"] == "content_block_start") {
      CHECK(!open);
      CHECK(event["index"] == content.size());
      content.push_back(event["content_block"]);
      open = true;
      input.clear();
      continue;
    }
    REQUIRE(open);
    REQUIRE(event["index"] == content.size() - 1);
    Json& block = content.back();
    if (event["type"] == "content_block_stop") {
      open = false;
      if (block["type"] == "tool_use") block["input"] = Json::parse(input);
      continue;
    }
    REQUIRE(event["type"] == "content_block_delta");
    const Json& delta = event["delta"];
    if (delta["type"] == "text_delta")
      block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
    else if (delta["type"] == "thinking_delta")
      block["thinking"] =
          block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
    else if (delta["type"] == "input_json_delta")
      input += delta["partial_json"].get<std::string>();
    else
      CHECK(delta["type"] == "signature_delta");
  }
  CHECK(!open);
  const Json& last = events[events.size() - 2];
  REQUIRE(last["type"] == "message_delta");
  message.update(last["delta"]);
  message["usage"] = last["usage"];
  CHECK(events.back() == Json({{"type", "message_stop"}}));
  return message;
}

Json Streamed(Json request) {
  return Joined(Events(SharedServer(), kMessages, std::move(request)));
}

}  // namespace

TEST_CASE("A message is the recorded one, whole and by events, with its usage") {
  const Json recorded = Recorded("facts")[0];
  const Json request = MessagesOf(recorded);
  const Json message = SharedServer().Post(kMessages, request);
  CHECK(message["type"] == "message");
  CHECK(message["role"] == "assistant");
  CHECK(message["model"] == "dsv4-tiny");
  CHECK(message["content"] == Json::array({{{"type", "text"}, {"text", recorded["expected"]}}}));
  CHECK(message["stop_reason"] == "end_turn");
  CHECK(message["stop_sequence"].is_null());
  const Json& usage = message["usage"];
  CHECK(usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>() ==
        recorded["prompt_tokens"]);
  CHECK(usage["output_tokens"] == recorded["greedy_tokens"].size());
  const Json streamed = Streamed(request);
  CHECK(streamed["content"] == message["content"]);
  CHECK(streamed["stop_reason"] == "end_turn");
  CHECK(streamed["usage"]["output_tokens"] == usage["output_tokens"]);
  Json counted = request;
  counted.erase("max_tokens");
  CHECK(SharedServer().Post("/v1/messages/count_tokens", counted) ==
        Json({{"input_tokens", recorded["prompt_tokens"]}}));
}

TEST_CASE("Thinking, its budget, limits and stop sequences of messages") {
  const Json recorded = Recorded("arithmetic_thinking")[0];
  const std::string output = recorded["greedy_output"];
  Json request = MessagesOf(recorded);
  request["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  const Json message = SharedServer().Post(kMessages, request);
  const Json expected = Json::array({{{"type", "thinking"},
                                      {"thinking", output.substr(0, output.find("</think>"))},
                                      {"signature", ""}},
                                     {{"type", "text"}, {"text", recorded["expected"]}}});
  CHECK(message["content"] == expected);
  CHECK(Streamed(request)["content"] == expected);
  // What came back goes in again.
  request["messages"].push_back({{"role", "assistant"}, {"content", message["content"]}});
  request["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  request["max_tokens"] = 2;
  CHECK(SharedServer().Post(kMessages, request)["stop_reason"] == "max_tokens");
  CHECK(Streamed(request)["stop_reason"] == "max_tokens");

  Json stopped = MessagesOf(Recorded("facts")[0]);
  const std::string answer = Recorded("facts")[0]["expected"];
  const std::string stop = answer.substr(answer.size() / 2, 3);
  stopped["stop_sequences"] = {"never said", stop};
  for (const Json& ended : {SharedServer().Post(kMessages, stopped), Streamed(stopped)}) {
    CHECK(ended["stop_reason"] == "stop_sequence");
    CHECK(ended["stop_sequence"] == stop);
    CHECK(ended["content"][0]["text"] == answer.substr(0, answer.find(stop)));
  }
}

TEST_CASE("Tools of messages are called as recorded, and their results answered") {
  const Json recorded = Recorded("tool_call")[0];
  Json request = MessagesOf(recorded);
  for (const Json& message : {SharedServer().Post(kMessages, request), Streamed(request)}) {
    CHECK(message["stop_reason"] == "tool_use");
    REQUIRE(message["content"].size() == recorded["expected"].size());
    const Json& call = message["content"][0];
    CHECK(call["type"] == "tool_use");
    CHECK(!call["id"].get<std::string>().empty());
    CHECK(call["name"] == recorded["expected"][0]["name"]);
    CHECK(call["input"] == recorded["expected"][0]["arguments"]);
  }
  request["tool_choice"] = {{"type", "none"}};
  const Json uncalled = SharedServer().Post(kMessages, request);
  for (const Json& block : uncalled["content"]) CHECK(block["type"] != "tool_use");
  request["messages"] =
      Json::array({{{"role", "user"}, {"content", "What is the capital of France?"}}});
  const Json name = request["tools"][0]["name"];
  request["tool_choice"] = {{"type", "tool"}, {"name", name}, {"disable_parallel_tool_use", true}};
  const Json forced = SharedServer().Post(kMessages, request);
  REQUIRE(!forced["content"].empty());
  CHECK(forced["content"].back()["name"] == name);

  const Json result = Recorded("tool_answer")[0];
  CHECK(SharedServer().Post(kMessages, MessagesOf(result))["content"][0]["text"] ==
        result["expected"]);
}

TEST_CASE("Errors of messages have Anthropic's form") {
  const struct {
    const char* body;
    const char* type;
    const char* message;
    int status = 400;
  } kCases[] = {
      {R"({"max_tokens": 1})", "invalid_request_error", "messages must be a list"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "invalid_request_error",
       "max_tokens is missing"},
      {R"({"model": "x", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})",
       "not_found_error", "model \"x\"", 404},
      {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "invalid_request_error",
       "messages[0].content must be"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}], "container": "c"})",
       "invalid_request_error", "container is not supported"},
  };
  for (const auto& [body, type, message, status] : kCases) {
    const Json error = SharedServer().Post(kMessages, Json::parse(body), status);
    CHECK(error["type"] == "error");
    CHECK(error["error"]["type"] == type);
    CHECK(error["error"]["message"].get<std::string>().find(message) != std::string::npos);
  }
}

TEST_CASE("A prompt that is too long is refused in Anthropic's words") {
  std::string text;
  for (int i = 0; i < 9000; ++i) text += std::to_string(i) + " ";
  const Json error = SharedServer().Post(
      kMessages,
      {{"max_tokens", 1}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}}, 400);
  const std::string message = error["error"]["message"];
  CHECK(message.substr(0, 20) == "prompt is too long: ");
  CHECK(message.find(" maximum") == message.size() - 8);
}

}  // namespace dsv4::test
