// SPDX-License-Identifier: Apache-2.0
// What the server does with requests that are wrong, too many, or left alone by their clients.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kRunning[] = "vllm:num_requests_running{model_name=\"dsv4-tiny\"}";
constexpr char kAborted[] =
    "vllm:request_success_total{model_name=\"dsv4-tiny\",finished_reason=\"abort\"}";

// One that would take the whole context.
Json Endless() {
  Json request = Ask("Write a short story about Ralf and a ring.");
  request.update({{"ignore_eos", true}, {"stream", true}});
  return request;
}

httplib::Request RequestOfStream(const Json& body, httplib::ContentReceiverWithProgress receiver) {
  httplib::Request request;
  request.method = "POST";
  request.path = kChat;
  request.set_header("Content-Type", "application/json");
  request.body = body.dump();
  request.content_receiver = std::move(receiver);
  return request;
}

int Connect(int port) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return connection;
}

bool Send(int connection, const std::string& bytes) {
  return send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

std::string HeadOfPost(const std::string& length) {
  return std::string("POST ") + kChat +
         " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + length + "\r\n\r\n";
}

// The status of a body of `count` chunks of 1 MB; -1 when the connection was cut.
int StatusOfChunks(int port, int count) {
  const int connection = Connect(port);
  const std::string chunk = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  bool sent = Send(connection, HeadOfPost("Transfer-Encoding: chunked"));
  for (int i = 0; i < count && sent; ++i) sent = Send(connection, chunk);
  if (sent) Send(connection, "0\r\n\r\n");
  char line[13] = "";  // HTTP/1.1 400
  const bool answered = recv(connection, line, 12, MSG_WAITALL) == 12;
  close(connection);
  return answered ? atoi(line + 9) : -1;
}

}  // namespace

TEST_CASE("The model is named, counted and healthy") {
  const ServerProgram& server = SharedServer();
  const Json models = server.Get("/v1/models");
  CHECK(models["object"] == "list");
  CHECK(models["data"][0]["id"] == "dsv4-tiny");
  CHECK(models["data"][0]["max_model_len"] == 16384);
  CHECK(server.Get("/health")["status"] == "ok");
  const double before = server.Metric("vllm:generation_tokens_total{model_name=\"dsv4-tiny\"}");
  const Json usage = server.Post(kChat, Ask("What is the capital of France?"))["usage"];
  CHECK(server.Metric("vllm:generation_tokens_total{model_name=\"dsv4-tiny\"}") ==
        before + usage["completion_tokens"].get<double>());
}

TEST_CASE("The page loads its own files only, and makes no elements of text") {
  httplib::Client client = SharedServer().Client();
  const httplib::Result page = client.Get("/");
  REQUIRE(page);
  CHECK(page->status == 200);
  CHECK(page->get_header_value("Content-Type") == "text/html; charset=utf-8");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  CHECK(policy.substr(0, 18) == "default-src 'none'");
  CHECK(policy.find("unsafe") == std::string::npos);
  CHECK(policy.find("require-trusted-types-for 'script'") != std::string::npos);
  for (const char* reference : {"://", "@import", "url(", "style=", "onclick="})
    CHECK(page->body.find(reference) == std::string::npos);
  const std::pair<const char*, const char*> kFiles[] = {
      {"page.css", "text/css; charset=utf-8"},
      {"page.js", "text/javascript; charset=utf-8"},
      {"markdown.js", "text/javascript; charset=utf-8"},
      {"marked.js", "text/javascript; charset=utf-8"}};
  for (const auto& [name, type] : kFiles) {
    INFO(name);
    CHECK(page->body.find('"' + std::string(name) + '"') != std::string::npos);
    const httplib::Result file = client.Get("/" + std::string(name));
    REQUIRE(file);
    CHECK(file->status == 200);
    CHECK(file->get_header_value("Content-Type") == type);
    CHECK(file->get_header_value("X-Content-Type-Options") == "nosniff");
    CHECK(file->body.size() > 1000);
    for (const char* call : {"innerHTML", "insertAdjacentHTML", "document.write", "eval("})
      CHECK(file->body.find(call) == std::string::npos);
  }
}

TEST_CASE("Errors name the field") {
  const struct {
    const char* body;
    const char* param;
    int status = 400;
  } kCases[] = {
      {R"({"messages": [{"role": "user", "content": "a"}], "model": "gpt-4"})", "model", 404},
      {R"({})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [{"role": "wizard", "content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b",
           "prefix": true}]})",
       "messages[1].prefix"},
      {R"({"messages": [{"role": "user", "content": "a"}], "temperature": "warm"})", "temperature"},
      {R"({"messages": [{"role": "user", "content": "a"}], "temperature": -1})", "temperature"},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_p": 2})", "top_p"},
      {R"({"messages": [{"role": "user", "content": "a"}], "n": 9})", "n"},
      {R"({"messages": [{"role": "user", "content": "a"}], "min_tokens": 9})", "min_tokens"},
      {R"({"messages": [{"role": "user", "content": "a"}], "stop": [1]})", "stop"},
      {R"({"messages": [{"role": "user", "content": "a"}], "stop": ""})", "stop"},
      {R"({"messages": [{"role": "user", "content": "a"}], "seed": 1.5})", "seed"},
      {R"({"messages": [{"role": "user", "content": "a"}], "logit_bias": {"99999999": 1}})",
       "logit_bias"},
      {R"({"messages": [{"role": "user", "content": "a"}], "logit_bias": {"x": 1}})",
       "logit_bias.x"},
      {R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0})", "max_tokens"},
      {R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "max_completion_tokens": 2})",
       "max_tokens"},
      {R"({"messages": [{"role": "user", "content": "a"}], "stream_options": {"include_usage": true}})",
       "stream_options"},
      {R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "huge"})",
       "reasoning_effort"},
      {R"({"messages": [{"role": "user", "content": "a"}], "thinking": {"type": "disabled"}, "reasoning_effort": "high"})",
       "reasoning_effort"},
      {R"({"messages": [{"role": "user", "content": "a"}], "thinking": {"type": "perhaps"}})",
       "thinking.type"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": 1})", "tools"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {}}]})",
       "tools[0].function.name"},
      {R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"})",
       "tool_choice"},
      {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "xml"}})",
       "response_format.type"},
      {R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", "json_schema": {"strict": true, "schema": {"type": "thing"}}}})",
       "response_format"},
  };
  for (const auto& [body, param, status] : kCases) {
    const Json error = SharedServer().Post(kChat, Json::parse(body), status)["error"];
    INFO(body << " " << error.dump());
    CHECK(error["param"] == param);
    CHECK(error["type"] == "invalid_request_error");
    CHECK(!error["message"].get<std::string>().empty());
  }
  const auto completion_param = [](const Json& body) {
    return SharedServer().Post("/v1/completions", body, 400)["error"]["param"];
  };
  CHECK(completion_param({{"prompt", Json::array({"a", 1})}}) == "prompt[1]");
  CHECK(completion_param({{"prompt", Json::array({5, 99999999})}}) == "prompt");
  CHECK(completion_param({{"prompt", Json::array({5, -1})}}) == "prompt[1]");
  CHECK(completion_param({{"prompt", "a"}, {"suffix", "b"}}) == "suffix");
  CHECK(completion_param({{"prompt", "a"}, {"best_of", 2}}) == "best_of");
  CHECK(completion_param({{"prompt", "a"}, {"logprobs", 21}}) == "logprobs");
  CHECK(completion_param({{"prompt", "a"}, {"max_tokens", 0}}) == "max_tokens");
  const Json too_long =
      SharedServer().Post("/v1/completions", {{"prompt", std::vector<int>(20000, 5)}}, 400);
  CHECK(too_long["error"]["code"] == "context_length_exceeded");
}

// Python's json.loads and json.dumps, by which the family's published code writes schemas.
TEST_CASE("Numbers in schemas reach the model as the published code writes them") {
  const ServerProgram& server = SharedServer();
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [
      {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "x": {"type": "number", "minimum": 1e3, "maximum": 1.0E+4, "default": 2.50, "multipleOf": 0.5,
              "examples": [-0.10, 7, 123456789012345678901234567890]}}}}}]})";
  const httplib::Result tokens = server.Client().Post("/tokenize", body, "application/json");
  REQUIRE(tokens);
  INFO(tokens->body);
  REQUIRE(tokens->status == 200);
  const Json prompt =
      server.Post("/detokenize", {{"tokens", Json::parse(tokens->body)["tokens"]}})["prompt"];
  INFO(prompt);
  for (const char* number : {"\"minimum\": 1000.0,", "\"maximum\": 10000.0,", "\"default\": 2.5,",
                             "\"multipleOf\": 0.5,", "[-0.1, 7, 123456789012345678901234567890]"})
    CHECK(prompt.get<std::string>().find(number) != std::string::npos);
  // Numbers of fields may be written in any way.
  const auto status = [&](const std::string& fields) {
    const httplib::Result result = server.Client().Post(
        kChat,
        R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, )" + fields + "}",
        "application/json");
    REQUIRE(result);
    return result->status;
  };
  CHECK(status(R"("temperature": 7.0e-1, "logit_bias": {"5": 1.50})") == 200);
  CHECK(status(R"("temperature": -1.0e0)") == 400);
  CHECK(status(R"("seed": 1e3)") == 400);
}

TEST_CASE("Bodies that are no requests are refused") {
  const ServerProgram& server = SharedServer();
  httplib::Client client = server.Client();
  client.set_keep_alive(true);
  const auto status = [&](const std::string& path, const std::string& body,
                          const char* type = "application/json") {
    const httplib::Result result = client.Post(path, body, type);
    REQUIRE(result);
    CHECK(Json::parse(result->body)["error"]["message"].is_string());
    return result->status;
  };
  CHECK(status(kChat, "") == 400);
  CHECK(status(kChat, "{\"messages\": [") == 400);
  CHECK(status(kChat, "[1]") == 400);
  CHECK(status(kChat, "{\"a\": \"\xff\xfe\"}") == 400);
  CHECK(status(kChat, "{\"seed\": 1e999}") == 400);
  CHECK(status(kChat, std::string(1 << 20, '[')) == 400);
  std::string many = "{\"a\": 1";
  for (int i = 0; i < 2000; ++i) many += ", \"b" + std::to_string(i) + "\": 1";
  CHECK(status(kChat, many + "}") == 400);
  CHECK(status(kChat, "{}", "text/plain") == 415);
  CHECK(status("/v1/nothing", "{}") == 404);
  const std::string most = "{\"model\": \"" + std::string((10 << 20) - 13, 'x') + "\"}";
  CHECK(most.size() == 10 << 20);
  CHECK(status(kChat, most) == 404);
  CHECK(status(kChat, most + " ") == 413);
  // In chunks, which do not say how long they are together; and packed.
  CHECK(StatusOfChunks(server.port(), 1) == 400);
  CHECK(StatusOfChunks(server.port(), 11) == 413);
  CHECK(StatusOfChunks(server.port(), 200) != 200);
  const httplib::Result packed =
      client.Post(kChat, {{"Content-Encoding", "gzip"}}, "x", "application/json");
  REQUIRE(packed);
  CHECK(packed->status == 415);
  CHECK(server.Get("/health")["status"] == "ok");
}

TEST_CASE("A client that vanishes has its session cancelled") {
  const ServerProgram& server = SharedServer();
  server.AwaitMetric(kRunning, 0);
  const double aborted = server.Metric(kAborted);
  // In the middle of a stream.
  httplib::Client client = server.Client();
  int chunks = 0;
  httplib::Request request = RequestOfStream(
      Endless(), [&](const char*, size_t, uint64_t, uint64_t) { return ++chunks < 5; });
  CHECK(!client.send(request));
  client.stop();
  server.AwaitMetric(kRunning, 0);
  CHECK(server.Metric(kAborted) == aborted + 1);
  // While it waits for a whole answer.
  Json whole = Endless();
  whole.erase("stream");
  const std::string body = whole.dump();
  const int connection = Connect(server.port());
  REQUIRE(Send(connection, HeadOfPost("Content-Length: " + std::to_string(body.size())) + body));
  server.AwaitMetric(kRunning, 1);
  // A session takes its first block a moment after its request counts as running.
  double used = 0;
  for (int i = 0; i < 500 && used == 0; ++i) {
    used = server.Metric("vllm:kv_cache_usage_perc{model_name=\"dsv4-tiny\"}");
  }
  CHECK(used > 0);
  close(connection);
  server.AwaitMetric(kRunning, 0);
  CHECK(server.Metric(kAborted) == aborted + 2);
}

TEST_CASE("A slow reader delays no other; one that closes its side is left; all blocks come back") {
  // Of its own: sessions that answers have left open use the cache, too.
  const ServerProgram server({"--max-sessions", "8"});
  const double aborted = server.Metric(kAborted);
  Json body = Endless();
  body["max_tokens"] = 200;
  const std::vector<Json> expected = Stream(server, kChat, body);
  std::atomic<bool> begun = false, others_done = false;
  std::string text;
  std::thread reader([&] {
    httplib::Client slow = server.Client();
    httplib::Request request =
        RequestOfStream(body, [&](const char* data, size_t size, uint64_t, uint64_t) {
          text.append(data, size);
          begun = true;
          // Takes nothing more until the others have been answered.
          while (!others_done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return true;
        });
    slow.send(request);
    begun = true;
  });
  while (!begun) std::this_thread::yield();
  const Json recorded = Recorded("facts")[0];
  for (int i = 0; i < 3; ++i) {
    const Json answer = server.Post(kChat, RequestOf(recorded));
    CHECK(answer["choices"][0]["message"]["content"] == recorded["expected"]);
  }
  others_done = true;
  reader.join();
  const std::vector<Json> chunks = ChunksOf(text);
  REQUIRE(chunks.size() == expected.size());
  for (size_t i = 0; i < chunks.size(); ++i)
    CHECK(chunks[i]["choices"][0]["delta"] == expected[i]["choices"][0]["delta"]);

  server.AwaitMetric(kRunning, 0);  // the last answer's session may end behind the answer
  const std::string endless = Endless().dump();
  const int connection = Connect(server.port());
  REQUIRE(
      Send(connection, HeadOfPost("Content-Length: " + std::to_string(endless.size())) + endless));
  server.AwaitMetric(kRunning, 1);
  shutdown(connection, SHUT_WR);
  server.AwaitMetric(kRunning, 0);
  close(connection);
  CHECK(server.Metric(kAborted) == aborted + 1);
  server.AwaitMetric("vllm:kv_cache_usage_perc{model_name=\"dsv4-tiny\"}", 0);
}

TEST_CASE("Keys, too many requests, and a stop that lets requests end") {
  ServerProgram server(
      {"--api-key", "secret", "--max-requests", "1", "--served-model-name", "mine"});
  httplib::Client client = server.Client();
  const auto status = [&](const char* path, const httplib::Headers& headers) {
    const httplib::Result result = client.Get(path, headers);
    REQUIRE(result);
    return result->status;
  };
  const httplib::Headers key = {{"Authorization", "Bearer secret"}};
  CHECK(status("/health", {}) == 200);
  CHECK(status("/", {}) == 200);
  for (const char* path : {"/v1/models", "/metrics", "/nothing"}) {
    CHECK(status(path, {}) == 401);
    CHECK(status(path, {{"Authorization", "Bearer secreT"}}) == 401);
    CHECK(status(path, {{"Authorization", "Bearer secret2"}}) == 401);
    CHECK(status(path, {{"Authorization", "secret"}}) == 401);
  }
  CHECK(status("/v1/models", key) == 200);

  // One that runs for a while.
  Json body = Endless();
  body["max_tokens"] = 1500;
  body["model"] = "mine";
  std::atomic<bool> begun = false;
  std::string text;
  std::thread reader([&] {
    httplib::Client other = server.Client();
    httplib::Request request =
        RequestOfStream(body, [&](const char* data, size_t size, uint64_t, uint64_t) {
          text.append(data, size);
          begun = true;
          return true;
        });
    request.set_header("Authorization", "Bearer secret");
    other.send(request);
    begun = true;
  });
  while (!begun) std::this_thread::yield();
  const auto post_status = [&] {
    const httplib::Result result = client.Post(kChat, key, body.dump(), "application/json");
    return result ? result->status : -1;
  };
  CHECK(post_status() == 429);
  server.Signal(SIGTERM);
  // The signal ends the kept connection, perhaps while a request is sent on it.
  int refused = 429, ended = 0;
  while (refused == 429 || (refused == -1 && ended++ < 3)) refused = post_status();
  CHECK(refused == 503);
  reader.join();
  const std::vector<Json> chunks = ChunksOf(text);
  CHECK(chunks.size() == 1501);
  CHECK(chunks.back()["choices"][0]["finish_reason"] == "length");
  CHECK(server.Wait() == 0);
}

TEST_CASE("Requests wait for a full cache; a second signal cancels") {
  // Room for one of the prompts.
  ServerProgram server({"--context", "1024", "--cache-tokens", "1024", "--max-sessions", "4"});
  std::vector<int> statuses(3);
  std::vector<Json> answers(3);
  std::vector<std::thread> clients;
  const auto body_of = [](size_t first) {
    std::string prompt;
    for (size_t i = 0; i < 60; ++i)
      prompt += "The " + std::to_string(first + i) + "th cat sat on the mat. ";
    return Json{{"prompt", prompt}, {"max_tokens", 20}, {"ignore_eos", true}, {"seed", 7}};
  };
  const auto post = [&](const Json& body) {
    return server.Client().Post("/v1/completions", body.dump(), "application/json");
  };
  for (size_t i = 0; i < statuses.size(); ++i) {
    clients.emplace_back([&, i] {
      const httplib::Result result = post(body_of(1000 * (i + 1)));
      if (!result) return;
      statuses[i] = result->status;
      answers[i] = Json::parse(result->body);
    });
  }
  for (std::thread& client : clients) client.join();
  // Those that find no room begin again when another has ended.
  CHECK(statuses == std::vector<int>(3, 200));
  CHECK(server.Metric("vllm:num_preemptions_total{model_name=\"dsv4-tiny\"}") > 0);
  for (size_t i = 0; i < answers.size(); ++i) {
    const httplib::Result alone = post(body_of(1000 * (i + 1)));
    REQUIRE(alone);
    CHECK(answers[i]["choices"] == Json::parse(alone->body)["choices"]);
  }
  // One request that needs more than there is.
  Json most = body_of(7000);
  most["prompt"] = Json::array();
  for (size_t i = 0; i < 4; ++i) most["prompt"].push_back(body_of(7000 + 100 * i)["prompt"]);
  const httplib::Result refused = post(most);
  REQUIRE(refused);
  CHECK(refused->status == 503);
  CHECK(Json::parse(refused->body)["error"]["code"] == "out_of_cache");

  std::atomic<bool> begun = false;
  std::string text;
  std::thread reader([&] {
    httplib::Client other = server.Client();
    Json streamed = Endless();
    httplib::Request request =
        RequestOfStream(streamed, [&](const char* data, size_t size, uint64_t, uint64_t) {
          text.append(data, size);
          begun = true;
          return true;
        });
    other.send(request);
    begun = true;
  });
  while (!begun) std::this_thread::yield();
  server.Signal(SIGINT);
  server.Signal(SIGTERM);
  reader.join();
  const std::vector<Json> chunks = ChunksOf(text);
  CHECK(chunks.back()["error"]["code"] == "stopping");
  CHECK(server.Wait() == 0);
}

TEST_CASE("Options that are wrong are named") {
  const auto code = [](const std::string& options) {
    const int status = system((std::string(DSV4_SERVER) + " " + options +
                               " 2>&1 >/dev/null | "
                               "grep -q -- \"${EXPECT}\"")
                                  .c_str());
    return status;
  };
  setenv("EXPECT", "unknown option --nope", 1);
  CHECK(code("--nope") == 0);
  setenv("EXPECT", "--port: \"99999\" is not", 1);
  CHECK(code("--port 99999") == 0);
  setenv("EXPECT", "/nowhere", 1);
  CHECK(code("--model /nowhere") == 0);
}

TEST_CASE("An idle server gives memory back, and the next requests take it again") {
  constexpr char kSuspended[] = "dsv4:suspended{model_name=\"dsv4-tiny\"}";
  const ServerProgram server({"--max-sessions", "4", "--suspend-after", "1"});
  const Json question = Ask("What is the capital of France?");
  const auto content = [&] {
    return server.Post(kChat, question)["choices"][0]["message"]["content"].get<std::string>();
  };
  REQUIRE(content() == "The capital of France is Paris.");
  CHECK(server.Metric(kSuspended) == 0);
  for (int round = 0; round < 2; ++round) {
    server.AwaitMetric(kSuspended, 1);
    // Who asks how it goes does not wake it; nor does what needs no memory.
    CHECK(server.Get("/health")["status"] == "suspended");
    CHECK(server.Post("/tokenize", {{"prompt", "Hi"}})["count"] > 0);
    CHECK(server.Metric(kSuspended) == 1);
    std::vector<std::string> answers(4);
    std::vector<std::thread> clients;
    // Assertions are for the main thread alone.
    for (std::string& answer : answers) {
      clients.emplace_back([&] {
        const httplib::Result result =
            server.Client().Post(kChat, question.dump(), "application/json");
        if (result) answer = result->body;
      });
    }
    for (std::thread& client : clients) client.join();
    for (const std::string& answer : answers) {
      CHECK(Json::parse(answer)["choices"][0]["message"]["content"] ==
            "The capital of France is Paris.");
    }
    CHECK(server.Get("/health")["status"] == "ok");
  }
  // The alarms of the engine are there, and none was raised.
  CHECK(server.Metric("dsv4:alarms_total{model_name=\"dsv4-tiny\",alarm=\"canary\"}") == 0);
  CHECK(server.Metric("dsv4:second_set_operators{model_name=\"dsv4-tiny\"}") == 0);
  CHECK(server.Metric("dsv4:steps_total{model_name=\"dsv4-tiny\"}") > 8);
  CHECK(server.Metric("dsv4:step_seconds_total{model_name=\"dsv4-tiny\"}") > 0);
  const std::string decode = "_decode_tokens_per_second{model_name=\"dsv4-tiny\"}";
  CHECK(server.Metric("dsv4:predicted" + decode) > 0);
  CHECK(server.Metric("dsv4:measured" + decode) >= 0);
}

}  // namespace dsv4::test
