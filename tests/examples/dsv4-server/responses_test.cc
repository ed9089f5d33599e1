// SPDX-License-Identifier: Apache-2.0
// /v1/responses. What the model says is recorded in models/dsv4-tiny/gates.json.
#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kResponses[] = "/v1/responses";

// A recorded request as items.
Json ItemsOf(const Json& recorded) {
  Json request = {{"model", "dsv4-tiny"}, {"temperature", 0}, {"store", false}};
  Json input = Json::array();
  for (const Json& message : recorded["messages"]) {
    for (const Json& tool : message.value("tools", Json::array())) {
      Json ours = tool["function"];
      ours["type"] = "function";
      request["tools"].push_back(ours);
    }
    const std::string text = message.contains("content") && message["content"].is_string()
                                 ? message["content"].get<std::string>()
                                 : "";
    if (message["role"] == "system") {
      if (!text.empty()) request["instructions"] = text;
    } else if (message["role"] == "tool") {
      input.push_back({{"type", "function_call_output"},
                       {"call_id", message.value("tool_call_id", "call_0")},
                       {"output", text}});
    } else {
      const char* type = message["role"] == "user" ? "input_text" : "output_text";
      if (!text.empty())
        input.push_back({{"role", message["role"]},
                         {"content", Json::array({{{"type", type}, {"text", text}}})}});
      for (const Json& call : message.value("tool_calls", Json::array())) {
        const Json& arguments = call["function"]["arguments"];
        input.push_back(
            {{"type", "function_call"},
             {"call_id", call.value("id", "call_0")},
             {"name", call["function"]["name"]},
             {"arguments", arguments.is_string() ? arguments : Json(arguments.dump())}});
      }
    }
  }
  request["input"] = input;
  return request;
}

// The response at the end of a stream, whose events are checked against it.
Json Streamed(Json request) {
  const std::vector<Json> events = Events(SharedServer(), kResponses, std::move(request));
  REQUIRE(events.size() > 3);
  CHECK(events[0]["type"] == "response.created");
  CHECK(events[1]["type"] == "response.in_progress");
  CHECK(events[0]["response"]["status"] == "in_progress");
  const Json& response = events.back()["response"];
  CHECK(events.back()["type"] == "response." + response["status"].get<std::string>());
  Json items = Json::array(), log_probs = Json::array();
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    INFO(event.dump());
    CHECK(event["sequence_number"] == i);
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      CHECK(event["output_index"] == items.size());
      text.clear();
      log_probs = Json::array();
    } else if (type.ends_with(".delta")) {
      CHECK(event["output_index"] == items.size());
      text += event["delta"].get<std::string>();
      const Json some = event.value("logprobs", Json::array());
      log_probs.insert(log_probs.end(), some.begin(), some.end());
    } else if (type == "response.output_text.done" || type == "response.reasoning_text.done") {
      CHECK(event["text"] == text);
      CHECK(event.value("logprobs", Json::array()) == log_probs);
    } else if (type == "response.function_call_arguments.done") {
      CHECK(event["arguments"] == text);
    } else if (type == "response.output_item.done") {
      items.push_back(event["item"]);
    }
  }
  CHECK(items == response["output"]);
  return response;
}

}  // namespace

TEST_CASE("Log-probabilities of the text are those of a chat, also of tokens within characters") {
  const ServerProgram& server = SharedServer();
  const char* const questions[] = {"Do you know the capital of Russia?", "法国的首都是什么？"};
  for (const char* question : questions) {
    Json chat = Ask(question);
    chat.update({{"logprobs", true}, {"top_logprobs", 2}});
    const Json choice = server.Post("/v1/chat/completions", chat)["choices"][0];
    const Json expected = choice["logprobs"]["content"];
    Json request = {{"input", question},
                    {"temperature", 0},
                    {"include", Json::array({"message.output_text.logprobs"})},
                    {"top_logprobs", 2}};
    for (const Json& response : {server.Post(kResponses, request), Streamed(request)}) {
      CHECK(response["top_logprobs"] == 2);
      const Json& part = response["output"][0]["content"][0];
      CHECK(part["logprobs"] == expected);
      std::string text;
      for (const Json& entry : part["logprobs"]) {
        for (const Json& byte : entry["bytes"]) text += static_cast<char>(byte.get<int>());
      }
      CHECK(text == choice["message"]["content"].get<std::string>());
    }
    // Of the reasoning and of calls there are none.
    request.update({{"reasoning", {{"effort", "high"}}}, {"input", "Calculate 91 + 49."}});
    const Json output = Streamed(request)["output"];
    REQUIRE(output.size() == 2);
    CHECK(!output[0]["content"][0].contains("logprobs"));
    std::string text;
    for (const Json& entry : output[1]["content"][0]["logprobs"])
      text += entry["token"].get<std::string>();
    CHECK(text == "91 + 49 = 140");
  }
  const auto param = [&](const Json& fields) {
    Json request = {{"input", "a"}};
    request.update(fields);
    return server.Post(kResponses, request, 400)["error"]["param"];
  };
  CHECK(param({{"top_logprobs", 2}}) == "top_logprobs");
  CHECK(param({{"include", Json::array({1})}}) == "include");
  CHECK(param({{"include", "message.output_text.logprobs"}}) == "include");
}

TEST_CASE("A response is the recorded one, whole and by events, with its usage") {
  const Json recorded = Recorded("facts")[0];
  Json request = ItemsOf(recorded);
  for (const Json& response : {SharedServer().Post(kResponses, request), Streamed(request)}) {
    CHECK(response["object"] == "response");
    CHECK(response["status"] == "completed");
    CHECK(response["error"].is_null());
    REQUIRE(response["output"].size() == 1);
    const Json& item = response["output"][0];
    CHECK(item["type"] == "message");
    CHECK(item["status"] == "completed");
    CHECK(item["content"][0]["type"] == "output_text");
    CHECK(item["content"][0]["text"] == recorded["expected"]);
    CHECK(response["usage"]["input_tokens"] == recorded["prompt_tokens"]);
    CHECK(response["usage"]["output_tokens"] == recorded["greedy_tokens"].size());
  }
  // The same as a string.
  request["input"] = request["input"][0]["content"][0]["text"];
  CHECK(SharedServer().Post(kResponses, request)["output"][0]["content"][0]["text"] ==
        recorded["expected"]);
  request["max_output_tokens"] = 2;
  for (const Json& response : {SharedServer().Post(kResponses, request), Streamed(request)}) {
    CHECK(response["status"] == "incomplete");
    CHECK(response["incomplete_details"]["reason"] == "max_output_tokens");
    CHECK(response["output"][0]["status"] == "incomplete");
  }
}

TEST_CASE("Reasoning and calls of responses are items, and go in again") {
  const Json thought = Recorded("arithmetic_thinking")[0];
  const std::string output = thought["greedy_output"];
  Json request = ItemsOf(thought);
  request["reasoning"] = {{"effort", "low"}, {"summary", "auto"}};
  for (const Json& response : {SharedServer().Post(kResponses, request), Streamed(request)}) {
    REQUIRE(response["output"].size() == 2);
    CHECK(response["output"][0]["type"] == "reasoning");
    CHECK(response["output"][0]["content"][0]["text"] == output.substr(0, output.find("</think>")));
    CHECK(response["output"][1]["content"][0]["text"] == thought["expected"]);
    CHECK(response["usage"]["output_tokens_details"]["reasoning_tokens"].get<int>() > 0);
  }

  const Json recorded = Recorded("tool_call")[0];
  request = ItemsOf(recorded);
  for (const Json& response : {SharedServer().Post(kResponses, request), Streamed(request)}) {
    REQUIRE(response["output"].size() == recorded["expected"].size());
    const Json& call = response["output"][0];
    CHECK(call["type"] == "function_call");
    CHECK(!call["call_id"].get<std::string>().empty());
    CHECK(call["name"] == recorded["expected"][0]["name"]);
    CHECK(Json::parse(call["arguments"].get<std::string>()) ==
          recorded["expected"][0]["arguments"]);
    // All items of an answer are input of the next request.
    Json next = request;
    for (const Json& item : response["output"]) next["input"].push_back(item);
    next["input"].push_back(
        {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "sunny"}});
    CHECK(SharedServer().Post(kResponses, next)["status"] == "completed");
  }
  request["tool_choice"] = {{"type", "function"}, {"name", request["tools"][0]["name"]}};
  request["parallel_tool_calls"] = false;
  CHECK(SharedServer().Post(kResponses, request)["output"].back()["name"] ==
        request["tools"][0]["name"]);
  const Json result = Recorded("tool_answer")[0];
  CHECK(SharedServer().Post(kResponses, ItemsOf(result))["output"][0]["content"][0]["text"] ==
        result["expected"]);
}

TEST_CASE("A response is held to text.format") {
  Json request = {{"input", "What is the capital of France?"}, {"max_output_tokens", 60}};
  request["text"] = Json::parse(R"({"format": {"type": "json_schema", "name": "a", "strict": true,
      "schema": {"type": "object", "properties": {"name": {"enum": ["x", "y"]}},
      "required": ["name"], "additionalProperties": false}}})");
  const Json value = Json::parse(SharedServer()
                                     .Post(kResponses, request)["output"][0]["content"][0]["text"]
                                     .get<std::string>());
  CHECK((value["name"] == "x" || value["name"] == "y"));
}

TEST_CASE("Errors of responses name the field") {
  const struct {
    const char* body;
    const char* param;
  } kCases[] = {
      {R"({})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": "a", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "a", "conversation": "c"})", "conversation"},
      {R"({"input": "a", "background": true})", "background"},
      {R"({"input": "a", "truncation": "half"})", "truncation"},
      {R"({"input": "a", "tool_choice": "required"})", "tool_choice"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type"},
      {R"({"input": [{"role": "wizard", "content": "a"}]})", "input[0].role"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]})",
       "input[0].arguments"},
  };
  for (const auto& [body, param] : kCases) {
    const Json error = SharedServer().Post(kResponses, Json::parse(body), 400)["error"];
    CHECK(error["param"] == param);
    CHECK(error["type"] == "invalid_request_error");
  }
}

}  // namespace dsv4::test
