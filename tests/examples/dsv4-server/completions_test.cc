// SPDX-License-Identifier: Apache-2.0
// /v1/completions, /tokenize and /detokenize.
#include <dsv4/dsv4.hpp>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kComplete[] = "/v1/completions";

}  // namespace

TEST_CASE("A prompt is continued, as text and as ids, whole and by chunks") {
  const ServerProgram& server = SharedServer();
  // The prompt of a recorded answer as the model's format writes it.
  const Json recorded = Recorded("facts")[0];
  const Json ids = server.Post("/tokenize", {{"messages", recorded["messages"]}})["tokens"];
  CHECK(ids.size() == recorded["prompt_tokens"]);
  const std::string text = server.Post("/detokenize", {{"tokens", ids}})["prompt"];
  Json request = {{"temperature", 0}, {"max_tokens", 50}, {"return_token_ids", true}};
  for (const Json& prompt : {ids, Json::array({ids}), Json(text), Json::array({text})}) {
    request["prompt"] = prompt;
    // The text begins with the marker of the beginning itself.
    request["add_special_tokens"] = false;
    const Json answer = server.Post(kComplete, request);
    CHECK(answer["object"] == "text_completion");
    CHECK(answer["choices"][0]["text"] == recorded["expected"]);
    CHECK(answer["choices"][0]["finish_reason"] == "stop");
    CHECK(answer["choices"][0]["logprobs"].is_null());
    CHECK(answer["usage"]["prompt_tokens"] == ids.size());
    CHECK(answer["usage"]["completion_tokens"] == recorded["greedy_tokens"].size());
    CHECK(answer["choices"][0]["token_ids"] == recorded["greedy_tokens"]);
  }
  request["stream_options"] = {{"include_usage", true}};
  const std::vector<Json> chunks = Stream(server, kComplete, request);
  CHECK(chunks.size() == recorded["greedy_tokens"].size() + 1);
  std::string joined;
  for (const Json& chunk : chunks) {
    if (!chunk["choices"].empty()) joined += chunk["choices"][0]["text"].get<std::string>();
  }
  CHECK(joined == recorded["expected"].get<std::string>());
  CHECK(chunks.back()["usage"]["prompt_tokens"] == ids.size());
  // 16 is the default of OpenAI's API.
  CHECK(server.Post(kComplete,
                    {{"prompt", "a"}, {"ignore_eos", true}})["usage"]["completion_tokens"] == 16);
}

TEST_CASE("Several prompts have as many choices, each with its candidates") {
  Json request = {{"temperature", 0}, {"max_tokens", 8}};
  std::vector<std::string> expected;
  for (const char* prompt : {"The capital of France", "Two and two", "The river"}) {
    request["prompt"] = prompt;
    expected.push_back(SharedServer().Post(kComplete, request)["choices"][0]["text"]);
  }
  request["prompt"] = {"The capital of France", "Two and two", "The river"};
  request["n"] = 2;
  const Json answer = SharedServer().Post(kComplete, request);
  REQUIRE(answer["choices"].size() == 6);
  for (size_t i = 0; i < 6; ++i) CHECK(answer["choices"][i]["text"] == expected[i / 2]);
  std::vector<std::string> streamed(6);
  for (const Json& chunk : Stream(SharedServer(), kComplete, request)) {
    const Json& choice = chunk["choices"][0];
    streamed.at(choice["index"].get<size_t>()) += choice["text"].get<std::string>();
  }
  for (size_t i = 0; i < 6; ++i) CHECK(streamed[i] == expected[i / 2]);
  request["n"] = 3;
  CHECK(SharedServer().Post(kComplete, request, 400)["error"]["param"] == "prompt");
}

TEST_CASE("echo gives the log-probabilities of the prompt, as the session has them") {
  const ServerProgram& server = SharedServer();
  const Engine engine(DSV4_SOURCE_DIR "/models/dsv4-tiny");
  std::vector<int32_t> ids = engine.tokenizer().Encode("The capital of France is Paris.");
  ids.insert(ids.begin(), engine.info().bos_token);
  SessionOptions options;
  options.sampling = Sampling();
  Session session(engine, options);
  session.Sync(ids, {1, 2});
  session.Step();
  const size_t first_chosen = ids.size();
  for (const int max_tokens : {0, 1}) {
    INFO(max_tokens);
    const Json request = {{"prompt", ids},
                          {"echo", true},
                          {"logprobs", 2},
                          {"temperature", 0},
                          {"max_tokens", max_tokens}};
    const Json choice = server.Post(kComplete, request)["choices"][0];
    const Json lists = choice["logprobs"];
    REQUIRE(lists["token_logprobs"].size() == first_chosen + static_cast<size_t>(max_tokens));
    CHECK(lists["tokens"].size() == lists["token_logprobs"].size());
    CHECK(lists["top_logprobs"].size() == lists["token_logprobs"].size());
    CHECK(lists["token_logprobs"][0].is_null());
    CHECK(lists["top_logprobs"][0].is_null());
    std::string text;
    for (size_t i = 0; i < first_chosen; ++i) {
      text += lists["tokens"][i].get<std::string>();
      if (i == 0) continue;
      const LogProbs expected = session.log_probs(static_cast<int64_t>(i));
      CHECK(lists["token_logprobs"][i].get<float>() == expected.log_prob);
      // What tells lm_eval whether a token is the greedy one.
      float most = -1e9f;
      for (const auto& [token, value] : lists["top_logprobs"][i].items())
        most = std::max(most, value.get<float>());
      CHECK(most == expected.top[0].log_prob);
    }
    CHECK(text == choice["text"].get<std::string>().substr(0, text.size()));
    CHECK(lists["text_offset"][0] == 0);
    // "<｜begin▁of▁sentence｜>" has 21 characters, in 29 bytes.
    CHECK(lists["text_offset"][1] == 21);
    if (max_tokens == 0) CHECK(choice["text"] == text);
  }
}

TEST_CASE("Tokens of texts") {
  const ServerProgram& server = SharedServer();
  const Json answer = server.Post("/tokenize", {{"prompt", "Hello"}, {"return_token_strs", true}});
  const Tokenizer tokenizer(DSV4_SOURCE_DIR "/models/dsv4-tiny");
  const std::vector<int32_t> ids = tokenizer.Encode("Hello");
  const std::vector<int32_t> tokens = answer["tokens"].get<std::vector<int32_t>>();
  REQUIRE(tokens.size() == ids.size() + 1);
  CHECK(tokens[0] == tokenizer.AddedToken("<｜begin▁of▁sentence｜>"));
  CHECK(std::vector<int32_t>(tokens.begin() + 1, tokens.end()) == ids);
  CHECK(answer["count"] == tokens.size());
  CHECK(answer["max_model_len"] == 16384);
  CHECK(answer["token_strs"].size() == tokens.size());
  CHECK(server.Post("/tokenize", {{"prompt", "Hello"}, {"add_special_tokens", false}})["tokens"] ==
        Json(ids));
  CHECK(server.Post("/detokenize", {{"tokens", ids}})["prompt"] == "Hello");
}

}  // namespace dsv4::test
