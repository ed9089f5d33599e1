// SPDX-License-Identifier: Apache-2.0
// /v1/chat/completions. What the model says is recorded in models/dsv4-tiny/gates.json.
#include <dsv4/dsv4.hpp>

#include <cmath>
#include <thread>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kChat[] = "/v1/chat/completions";

Json MessageOf(const Json& answer) { return answer.at("choices").at(0).at("message"); }

// The message that a client puts together of chunks.
Json Joined(const std::vector<Json>& chunks) {
  Json message = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
  for (const Json& chunk : chunks) {
    if (chunk.at("choices").empty()) continue;
    const Json& choice = chunk["choices"][0];
    for (const auto& [key, value] : choice.at("delta").items()) {
      if (key != "tool_calls") {
        message[key] = message.value(key, "") + value.get<std::string>();
        continue;
      }
      for (const Json& part : value) {
        Json& calls = message["tool_calls"];
        if (part.contains("id")) {
          REQUIRE(part["index"] == calls.size());
          calls.push_back(part);
          calls.back().erase("index");
        } else {
          Json& arguments = calls.at(part["index"].get<size_t>())["function"]["arguments"];
          arguments =
              arguments.get<std::string>() + part["function"]["arguments"].get<std::string>();
        }
      }
    }
    message["finish_reason"] = choice["finish_reason"];
  }
  return message;
}

Json Tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "weather_lookup",
    "description": "Get the weather for a city", "parameters": {"type": "object", "properties":
    {"city": {"type": "string", "description": "The city name"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "current_time", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])");
}

}  // namespace

TEST_CASE("An answer is the recorded one, whole and by chunks, with its usage") {
  const ServerProgram& server = SharedServer();
  const Json recorded = Recorded("facts")[0];
  Json request = RequestOf(recorded);
  request["model"] = "dsv4-tiny";
  const Json answer = server.Post(kChat, request);
  CHECK(answer["object"] == "chat.completion");
  CHECK(answer["model"] == "dsv4-tiny");
  CHECK(MessageOf(answer) == Json({{"role", "assistant"}, {"content", recorded["expected"]}}));
  CHECK(answer["choices"][0]["finish_reason"] == "stop");
  const size_t tokens = recorded["greedy_tokens"].size();
  const Json usage = answer["usage"];
  CHECK(usage["prompt_tokens"] == recorded["prompt_tokens"]);
  CHECK(usage["completion_tokens"] == tokens);
  CHECK(usage["total_tokens"] == recorded["prompt_tokens"].get<size_t>() + tokens);

  request["stream_options"] = {{"include_usage", true}};
  const std::vector<Json> chunks = Stream(server, kChat, request);
  // The role, a chunk for each token, and the usage.
  CHECK(chunks.size() == tokens + 2);
  CHECK(chunks[0]["choices"][0]["delta"]["role"] == "assistant");
  CHECK(Joined(chunks)["content"] == recorded["expected"]);
  CHECK(Joined(chunks)["finish_reason"] == "stop");
  CHECK(chunks.back()["usage"] == usage);
  CHECK(chunks.back()["choices"].empty());
  for (size_t i = 0; i + 1 < chunks.size(); ++i) CHECK(!chunks[i].contains("usage"));

  request["return_token_ids"] = true;
  request["cache_prompt"] = false;
  request["stream_options"] = {{"continuous_usage_stats", true}};
  const std::vector<Json> counted = Stream(server, kChat, request);
  CHECK(counted.size() == tokens + 1);
  for (size_t i = 1; i < counted.size(); ++i) {
    CHECK(counted[i]["usage"]["completion_tokens"] == i);
    CHECK(counted[i]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0);
    CHECK(counted[i]["choices"][0]["token_ids"] == Json::array({recorded["greedy_tokens"][i - 1]}));
  }
  request.erase("stream_options");
  CHECK(server.Post(kChat, request)["choices"][0]["token_ids"] == recorded["greedy_tokens"]);
}

TEST_CASE("32 requests at once have the answers of each alone") {
  const ServerProgram& server = SharedServer();
  std::vector<Json> cases;
  for (const char* kind : {"facts", "arithmetic", "conversation", "recall_400"}) {
    for (const Json& recorded : Recorded(kind)) cases.push_back(recorded);
  }
  REQUIRE(cases.size() >= 32);
  std::vector<std::string> contents(32);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < contents.size(); ++i) {
    // Assertions are for the main thread alone.
    clients.emplace_back([&, i] {
      Json request = RequestOf(cases[i * cases.size() / contents.size()]);
      request["stream"] = i % 2 == 1;
      const httplib::Result result =
          server.Client().Post(kChat, request.dump(), "application/json");
      if (result && result->status == 200) contents[i] = result->body;
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < contents.size(); ++i) {
    const Json& recorded = cases[i * cases.size() / contents.size()];
    INFO(recorded["id"] << " " << contents[i]);
    REQUIRE(!contents[i].empty());
    const Json message =
        i % 2 == 1 ? Joined(ChunksOf(contents[i])) : MessageOf(Json::parse(contents[i]));
    CHECK(message["content"] == recorded["expected"]);
  }
  server.AwaitMetric("vllm:num_requests_running{model_name=\"dsv4-tiny\"}", 0);
}

TEST_CASE("Sampled text is that of a session with the same parameters") {
  const Engine engine(DSV4_SOURCE_DIR "/models/dsv4-tiny");
  Sampling sampling = engine.default_sampling();
  sampling.temperature = 3;
  sampling.top_p = 0.9375f;
  sampling.top_k = 500;
  sampling.seed = 7;
  sampling.max_tokens = 40;
  SessionOptions session;
  session.sampling = sampling;
  const Message question = {DSV4_ROLE_USER, "Write a short story about Ralf and a ring."};
  Conversation chat(engine, session);
  chat.Sync({question});
  std::string expected;
  for (const Event& event : chat.events()) {
    if (event.type == DSV4_PARSER_TEXT) expected += event.text;
  }
  Json request = Ask(question.content);
  request.update({{"temperature", 3}, {"top_p", 0.9375}, {"top_k", 500}, {"max_tokens", 40}});
  request["seed"] = 7;
  CHECK(MessageOf(SharedServer().Post(kChat, request))["content"] == expected);
  request["seed"] = 8;
  CHECK(MessageOf(SharedServer().Post(kChat, request))["content"] != expected);
}

TEST_CASE("Thinking is asked for in each client's way, and comes apart from the answer") {
  const ServerProgram& server = SharedServer();
  const Json recorded = Recorded("arithmetic_thinking")[0];
  const std::string output = recorded["greedy_output"];
  const std::string reasoning = output.substr(0, output.find("</think>"));
  Json plain = RequestOf(recorded);
  plain.erase("thinking");
  for (const char* way :
       {R"({"thinking": {"type": "enabled"}})", R"({"reasoning_effort": "medium"})",
        R"({"chat_template_kwargs": {"thinking": true}})",
        R"({"chat_template_kwargs": {"enable_thinking": true, "reasoning_effort": "low"}})"}) {
    INFO(way);
    Json request = plain;
    request.update(Json::parse(way));
    const Json answer = server.Post(kChat, request);
    CHECK(MessageOf(answer)["reasoning_content"] == reasoning);
    CHECK(MessageOf(answer)["content"] == recorded["expected"]);
    const Json chunks = Joined(Stream(server, kChat, request));
    CHECK(chunks["reasoning_content"] == reasoning);
    CHECK(chunks["content"] == recorded["expected"]);
    // The tokens up to and with </think>, which is token 2038.
    const Json& tokens = recorded["greedy_tokens"];
    const auto end = std::find(tokens.begin(), tokens.end(), 2038);
    CHECK(answer["usage"]["completion_tokens_details"]["reasoning_tokens"] ==
          end - tokens.begin() + 1);
  }
  CHECK(!MessageOf(server.Post(kChat, plain)).contains("reasoning_content"));
  // The effort is words in the prompt.
  const auto length = [&](const char* effort) {
    Json request = plain;
    request.update({{"reasoning_effort", effort}, {"max_tokens", 1}});
    return server.Post(kChat, request)["usage"]["prompt_tokens"].get<int>();
  };
  CHECK(length("max") > length("low"));
  CHECK(length("low") == length("none"));
}

TEST_CASE("Reasoning of earlier turns goes in where the prompt keeps it") {
  const Json messages = Json::parse(R"([{"role": "user", "content": "What is 1 + 2?"},
      {"role": "assistant", "content": "3", "reasoning_content": "1 + 2 = 3."},
      {"role": "user", "content": "And 2 + 2?"}])");
  const Tokenizer tokenizer(DSV4_SOURCE_DIR "/models/dsv4-tiny");
  const Json with_tools = {{"messages", messages}, {"tools", Tools()}, {"reasoning_effort", "low"}};
  const std::vector<int32_t> kept =
      SharedServer().Post("/tokenize", with_tools)["tokens"].get<std::vector<int32_t>>();
  CHECK(tokenizer.Decode(kept).find("1 + 2 = 3.</think>3") != std::string::npos);
  CHECK(tokenizer.Decode(kept).find("weather_lookup") != std::string::npos);
  const std::vector<int32_t> dropped = SharedServer()
                                           .Post("/tokenize", {{"messages", messages}})["tokens"]
                                           .get<std::vector<int32_t>>();
  CHECK(tokenizer.Decode(dropped).find("1 + 2 = 3.") == std::string::npos);
}

TEST_CASE("Tools are called as recorded, and by tool_choice") {
  const ServerProgram& server = SharedServer();
  const Json recorded = Recorded("tool_call")[0];
  Json request = RequestOf(recorded);
  const Json answer = server.Post(kChat, request);
  CHECK(answer["usage"]["prompt_tokens"] == recorded["prompt_tokens"]);
  CHECK(answer["choices"][0]["finish_reason"] == "tool_calls");
  const auto check_calls = [&](const Json& message) {
    REQUIRE(message["tool_calls"].size() == recorded["expected"].size());
    const Json& call = message["tool_calls"][0];
    CHECK(call["type"] == "function");
    CHECK(!call["id"].get<std::string>().empty());
    CHECK(call["function"]["name"] == recorded["expected"][0]["name"]);
    CHECK(Json::parse(call["function"]["arguments"].get<std::string>()) ==
          recorded["expected"][0]["arguments"]);
  };
  check_calls(MessageOf(answer));
  CHECK(MessageOf(answer)["content"].is_null());
  const std::vector<Json> chunks = Stream(server, kChat, request);
  CHECK(chunks.size() == recorded["greedy_tokens"].size() + 1);
  check_calls(Joined(chunks));
  CHECK(Joined(chunks)["finish_reason"] == "tool_calls");

  request["tool_choice"] = "none";
  CHECK(!MessageOf(server.Post(kChat, request)).contains("tool_calls"));

  request = Ask("What is the capital of France?");
  request.update({{"tools", Tools()}, {"max_tokens", 200}, {"parallel_tool_calls", false}});
  request["tool_choice"] = {{"type", "function"}, {"function", {{"name", "current_time"}}}};
  const Json forced = MessageOf(server.Post(kChat, request));
  REQUIRE(forced["tool_calls"].size() == 1);
  CHECK(forced["tool_calls"][0]["function"]["name"] == "current_time");

  // The result of a call, and what the model makes of it.
  const Json result = Recorded("tool_answer")[0];
  CHECK(MessageOf(server.Post(kChat, RequestOf(result)))["content"] == result["expected"]);
}

TEST_CASE("An answer is held to response_format") {
  Json request = Ask("What is the capital of France?");
  request["max_tokens"] = 100;
  request["response_format"] = Json::parse(R"({"type": "json_schema", "json_schema": {"name": "a",
      "strict": true, "schema": {"type": "object", "properties": {"name": {"enum": ["x", "y"]},
      "count": {"type": "integer", "minimum": 5, "maximum": 9}}, "required": ["name", "count"],
      "additionalProperties": false}}})");
  const Json value =
      Json::parse(MessageOf(SharedServer().Post(kChat, request))["content"].get<std::string>());
  CHECK(value.size() == 2);
  CHECK((value["name"] == "x" || value["name"] == "y"));
  CHECK((value["count"] >= 5 && value["count"] <= 9));

  request["response_format"] = {{"type", "json_object"}};
  const std::string text = MessageOf(SharedServer().Post(kChat, request))["content"];
  CHECK(text.substr(0, 1) == "{");
}

TEST_CASE("Log-probabilities are those of the session") {
  const ServerProgram& server = SharedServer();
  const Json recorded = Recorded("facts")[1];
  Json request = RequestOf(recorded);
  request.update({{"logprobs", true}, {"top_logprobs", 3}});
  const Json whole = server.Post(kChat, request)["choices"][0]["logprobs"]["content"];

  const Engine engine(DSV4_SOURCE_DIR "/models/dsv4-tiny");
  SessionOptions session;
  session.sampling = Sampling();
  session.sampling.log_probs = 3;
  Conversation chat(engine, session);
  chat.SyncJson(recorded["messages"].dump());
  std::string text;
  for (const Json& entry : whole) {
    const StepResult step = chat.Step();
    const auto last = static_cast<int64_t>(chat.session().tokens().size()) - 1;
    const LogProbs expected = chat.session().log_probs(last);
    CHECK(entry["token"] == engine.tokenizer().Decode({&step.token, 1}));
    CHECK(entry["logprob"].get<float>() == expected.log_prob);
    REQUIRE(entry["top_logprobs"].size() == 3);
    for (size_t i = 0; i < 3; ++i)
      CHECK(entry["top_logprobs"][i]["logprob"].get<float>() == expected.top[i].log_prob);
    for (const Json& byte : entry["bytes"]) text += static_cast<char>(byte.get<int>());
  }
  CHECK(text == recorded["expected"].get<std::string>());

  Json joined = Json::array();
  for (const Json& chunk : Stream(server, kChat, request)) {
    const Json& some = chunk["choices"][0]["logprobs"];
    if (!some.is_null())
      joined.insert(joined.end(), some["content"].begin(), some["content"].end());
  }
  CHECK(joined == whole);
}

TEST_CASE("Limits and stops end answers") {
  const ServerProgram& server = SharedServer();
  Json request = Ask("What is the capital of France?");  // "The capital of France is Paris."
  request["max_tokens"] = 2;
  Json choice = server.Post(kChat, request)["choices"][0];
  CHECK(choice["message"]["content"] == "The capital");
  CHECK(choice["finish_reason"] == "length");
  request.erase("max_tokens");
  for (const Json& stop : {Json(" is"), Json::array({"zebra", " is"})}) {
    request["stop"] = stop;
    choice = server.Post(kChat, request)["choices"][0];
    CHECK(choice["message"]["content"] == "The capital of France");
    CHECK(choice["finish_reason"] == "stop");
  }
  request.erase("stop");
  request.update({{"ignore_eos", true}, {"max_completion_tokens", 30}});
  CHECK(server.Post(kChat, request)["usage"]["completion_tokens"] == 30);
}

TEST_CASE("A prompt that was seen is computed again only for another salt") {
  const ServerProgram& server = SharedServer();
  Json request = RequestOf(Recorded("recall_1000")[0]);
  request["cache_salt"] = "one";
  const auto cached = [&] {
    return server.Post(kChat, request)["usage"]["prompt_tokens_details"]["cached_tokens"]
        .get<int>();
  };
  CHECK(cached() == 0);
  CHECK(cached() >= 256);
  request["cache_salt"] = "two";
  CHECK(cached() == 0);
  CHECK(server.Metric("vllm:prefix_cache_hits_total{model_name=\"dsv4-tiny\"}") >= 256);
}

TEST_CASE("n candidates are those of n seeds") {
  Json request = Ask("Write a short story about Ralf and a ring.");
  request.update({{"temperature", 3}, {"max_tokens", 20}, {"seed", 7}});
  std::vector<std::string> expected;
  for (int i = 0; i < 3; ++i) {
    request["seed"] = 7 + i;
    expected.push_back(MessageOf(SharedServer().Post(kChat, request))["content"]);
  }
  CHECK(expected[0] != expected[1]);
  request.update({{"seed", 7}, {"n", 3}});
  const Json answer = SharedServer().Post(kChat, request);
  REQUIRE(answer["choices"].size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(answer["choices"][i]["index"] == i);
    CHECK(answer["choices"][i]["message"]["content"] == expected[i]);
  }
  CHECK(answer["usage"]["completion_tokens"] == 60);
  std::vector<std::string> streamed(3);
  for (const Json& chunk : Stream(SharedServer(), kChat, request)) {
    const Json& choice = chunk["choices"][0];
    streamed.at(choice["index"].get<size_t>()) += choice["delta"].value("content", "");
  }
  CHECK(streamed == expected);
}

}  // namespace dsv4::test
