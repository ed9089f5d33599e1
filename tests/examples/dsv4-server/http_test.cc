// SPDX-License-Identifier: Apache-2.0
// The server's connections, as clients see them that send what no library sends: framing, limits,
// slow and many connections, pages of browsers, keys.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/examples/dsv4-server/raw_client.h"
#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kChat[] = "/v1/chat/completions";

// Within which an answer that waits for nothing comes, on a machine that runs other tests too.
#ifdef __SANITIZE_ADDRESS__
constexpr double kAtOnce = 10;
#else
constexpr double kAtOnce = 2;
#endif

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string Get(const std::string& path, const std::string& headers = "",
                const std::string& host = "127.0.0.1") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n";
}

std::string GetAndClose() { return Get("/health", "Connection: close\r\n"); }

std::string PostOf(const Json& body, const std::string& headers = "",
                   const std::string& path = kChat) {
  const std::string text = body.dump();
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
         headers + "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text;
}

// What the server sends until it closes the connection, which it must do.
std::string Answers(const ServerProgram& server, const std::string& bytes) {
  RawConnection connection(server.port());
  connection.Send(bytes);
  bool closed = false;
  const std::string answers = connection.Receive(5, &closed);
  INFO(bytes.substr(0, 200) << "\n" << answers.substr(0, 500));
  CHECK(closed);
  return answers;
}

// Kilobytes of a line of /proc/PID/status.
long StatusLine(const ServerProgram& server, const std::string& name) {
  std::ifstream in("/proc/" + std::to_string(server.pid()) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  }
  return 0;
}

Json Endless() {
  Json request = Ask("Write a short story about Ralf and a ring.");
  request.update({{"ignore_eos", true}, {"stream", true}});
  return request;
}

}  // namespace

TEST_CASE("A request has one answer, and after a refusal the connection closes") {
  const ServerProgram& server = SharedServer();
  const std::string hidden = GetAndClose();
  const std::string length = "Content-Length: " + std::to_string(hidden.size()) + "\r\n";
  const std::string chunk = "Transfer-Encoding: chunked\r\n\r\n2b\r\n";
  const struct {
    std::string bytes;
    int status;
  } kCases[] = {
      // The body of a method that has none is no request.
      {Get("/health", length) + hidden, 400},
      {"HEAD /health HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + hidden, 400},
      {"OPTIONS /health HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + hidden, 405},
      {"DELETE /health HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + hidden, 405},
      {"GET /health HTTP/1.1\r\nHost: a\r\n" + chunk + hidden, 400},
      {Get("/nope", length) + hidden, 404},
      {"POST /nope HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + hidden, 404},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\n" + length + "\r\n" + hidden, 415},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
       "Content-Encoding: gzip\r\n" +
           length + "\r\n" + hidden,
       415},
      {"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
       "Content-Length: 20000000\r\n\r\n" +
           hidden,
       413},
      {PostOf({{"prompt", 1}}, "", "/tokenize") + hidden, 400},
      {"GET /health HTTP/1.1\nHost: a\n\n" + hidden, 400},
      {"GET /health HTTP/1.1\r\n\r\n" + hidden, 400},
      {"GET /health HTTP/3.0\r\nHost: a\r\n\r\n" + hidden, 505},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},
      {"GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n", 414},
      {Get("/" + std::string("health%2f")) + hidden, 404},
  };
  for (const auto& [bytes, status] : kCases) {
    const auto begin = Clock::now();
    const std::string answers = Answers(server, bytes);
    INFO(bytes.substr(0, 200) << "\n" << answers.substr(0, 500));
    CHECK(CountOfResponses(answers) == 1);
    CHECK(StatusOf(answers) == status);
    CHECK(answers.find("Connection: close\r\n") != std::string::npos);
    CHECK(SecondsSince(begin) < 4);
  }
}

TEST_CASE("Requests that follow one another on a connection; HEAD, ranges, Expect, HTTP/1.0") {
  const ServerProgram& server = SharedServer();
  std::string many;
  for (int i = 0; i < 200; ++i) many += Get("/v1/models");
  CHECK(CountOfResponses(Answers(server, many + GetAndClose())) == 201);
  const Json tokenize = {{"prompt", "Hi"}};
  CHECK(CountOfResponses(Answers(server, PostOf(tokenize, "", "/tokenize") + Get("/health") +
                                             PostOf(tokenize, "", "/tokenize") + GetAndClose())) ==
        4);

  const std::string head =
      Answers(server, "HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(head.find("Content-Length: 15\r\n") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
  const std::string range = Answers(server, Get("/", "Range: bytes=0-3\r\nConnection: close\r\n"));
  CHECK(StatusOf(range) == 200);
  CHECK(range.find("</html>") != std::string::npos);

  RawConnection waiting(server.port());
  const std::string post = PostOf(tokenize, "Expect: 100-continue\r\n", "/tokenize");
  const size_t body = post.find("\r\n\r\n") + 4;
  waiting.Send(post.substr(0, body));
  CHECK(waiting.Some(5) == "HTTP/1.1 100 Continue\r\n\r\n");
  waiting.Send(post.substr(body));
  CHECK(StatusOf(waiting.Some(5)) == 200);
  // Who would be refused is not asked to send.
  const std::string refused = Answers(server,
                                      "POST /nope HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                                      "Content-Length: 5\r\n\r\n");
  CHECK(StatusOf(refused) == 404);

  // Without chunks, and closed at the end.
  Json stream = Ask("What is the capital of France?");
  stream["stream"] = true;
  std::string old = PostOf(stream);
  old.replace(old.find("HTTP/1.1"), 8, "HTTP/1.0");
  const std::string text = Answers(server, old);
  CHECK(text.find("Transfer-Encoding") == std::string::npos);
  CHECK(text.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("Pages of other origins, and host names that were rebound, are refused on loopback") {
  ServerProgram server({"--cors-origin", "https://Chat.example.com,http://localhost:3000"});
  const auto status = [&](const std::string& host, const std::string& headers = "") {
    return StatusOf(Answers(server, Get("/v1/models", headers + "Connection: close\r\n", host)));
  };
  const std::string port = ":" + std::to_string(server.port());
  for (const std::string& host : {"127.0.0.1" + port, "localhost" + port, "LOCALHOST" + port,
                                  "[::1]" + port, "a.localhost" + port, std::string("127.0.0.1"),
                                  std::string("container"), std::string("chat.example.com")})
    CHECK(status(host) == 200);
  for (const std::string& host : {"evil.example" + port, "127.0.0.1.evil.example" + port,
                                  std::string("192.168.0.7"), std::string("evil.example."),
                                  std::string("localhost.evil.example"), std::string("[fe80::1]")})
    CHECK(status(host) == 403);
  CHECK(status("localhost", "Origin: http://localhost\r\n") == 200);
  CHECK(status("localhost", "Origin: http://localhost:3000\r\n") == 200);
  for (const char* origin : {"http://evil.example", "null", "http://localhost:4000", ""})
    CHECK(status("localhost", std::string("Origin: ") + origin + "\r\n") == 403);

  // What browsers ask before they let a page send its key and JSON.
  const std::string asked =
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Access-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\nOrigin: ";
  const std::string allowed = Answers(server, asked + "https://chat.example.com\r\n\r\n");
  CHECK(StatusOf(allowed) == 204);
  CHECK(allowed.find("Access-Control-Allow-Origin: https://chat.example.com\r\n") !=
        std::string::npos);
  CHECK(allowed.find("Access-Control-Allow-Headers: authorization, content-type\r\n") !=
        std::string::npos);
  CHECK(StatusOf(Answers(server, asked + "https://evil.example\r\n\r\n")) == 403);
  const std::string page = Answers(
      server, Get("/v1/models", "Origin: https://chat.example.com\r\nConnection: close\r\n"));
  CHECK(page.find("Access-Control-Allow-Origin: https://chat.example.com\r\n") !=
        std::string::npos);
  // Without the option nobody is allowed.
  CHECK(StatusOf(Answers(SharedServer(), asked + "https://chat.example.com\r\n\r\n")) == 403);
}

TEST_CASE("Keys come from a file, the environment or a credential, and health needs none") {
  char folder[] = "/tmp/dsv4-key-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/api-key";
  std::ofstream(file) << "secret\n";
  const auto check = [](const ServerProgram& server) {
    const auto status = [&](const std::string& path, const std::string& headers) {
      return StatusOf(Answers(server, Get(path, headers + "Connection: close\r\n")));
    };
    CHECK(status("/v1/models", "") == 401);
    CHECK(status("/v1/models", "x-api-key: secret\r\n") == 200);
    CHECK(status("/v1/models", "Authorization: Bearer secret\r\n") == 200);
    CHECK(status("/v1/models", "Authorization: Bearer secre\r\n") == 401);
    for (const char* path : {"/", "/health", "/health/live", "/health/ready"})
      CHECK(status(path, "") == 200);
    // Refused by its head: the body is not waited for.
    const std::string refused = Answers(
        server, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    CHECK(StatusOf(refused) == 401);
  };
  check(ServerProgram({"--api-key-file", file}));
  setenv("CREDENTIALS_DIRECTORY", folder, 1);
  check(ServerProgram({}));
  unsetenv("CREDENTIALS_DIRECTORY");
  setenv("DSV4_API_KEY", "secret", 1);
  check(ServerProgram({}));
  unsetenv("DSV4_API_KEY");
  // One that options give is not among the arguments that other users see.
  const ServerProgram shown({"--api-key", "secret"});
  check(shown);
  std::ifstream in("/proc/" + std::to_string(shown.pid()) + "/cmdline", std::ios::binary);
  const std::string arguments{std::istreambuf_iterator<char>(in), {}};
  CHECK(arguments.find("--api-key") != std::string::npos);
  CHECK(arguments.find("secret") == std::string::npos);
  unlink(file.c_str());
  rmdir(folder);
}

TEST_CASE("A thousand slow senders and readers cost the others nothing") {
  ServerProgram server({"--context", "4096", "--connection-memory", "32"});
  [[maybe_unused]] const long before = StatusLine(server, "VmRSS");
  std::vector<RawConnection> hostile;
  const std::string head = "GET /health HTTP/1.1\r\nHost: a\r\nX: ";
  const std::string post =
      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Content-Length: 9000000\r\n\r\n{";
  const std::string endless = PostOf(Endless());
  for (int i = 0; i < 1000; ++i) {
    hostile.emplace_back(server.port(), 4096);
    RawConnection& connection = hostile.back();
    if (i % 4 == 0) connection.Send(head + std::string(20000, 'a'));
    if (i % 4 == 1) connection.Send(post + std::string(200000, ' '));
    if (i % 4 == 2) connection.Send(endless);
  }
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    RawConnection other(server.port());
    other.Send(GetAndClose());
    CHECK(StatusOf(other.Receive(5)) == 200);
    CHECK(SecondsSince(begin) < kAtOnce);
    for (RawConnection& connection : hostile) connection.Send("a");
  }
#ifndef __SANITIZE_ADDRESS__  // which keeps freed memory for a while
  CHECK(StatusLine(server, "VmHWM") - before < 150 << 10);
#endif
  CHECK(StatusLine(server, "Threads") < 32);
  // A stop ends all that have no complete request; the second one, the others.
  server.Signal(SIGINT);
  server.Signal(SIGTERM);
  const auto begin = Clock::now();
  CHECK(server.Wait() == 0);
  CHECK(SecondsSince(begin) < 40);
}

TEST_CASE("Clients whose schemas take long delay neither streams nor other schemas") {
  const ServerProgram server({"--context", "4096"});
  // As long to compile as the library allows, and then refused or of masks that are.
  Json hard = Ask("Hi");
  Json patterns = Json::array();
  for (char letter = 'a'; letter <= 'p'; ++letter)
    patterns.push_back({{"pattern", "^.*" + std::string(1, letter) + ".*$"}});
  const auto with_schema = [](Json request, const Json& schema) {
    request.update({{"max_tokens", 5}});
    request["response_format"] = {{"type", "json_schema"},
                                  {"json_schema", {{"name", "x"}, {"schema", schema}}}};
    return PostOf(request, "Connection: close\r\n");
  };
  const std::string slow = with_schema(hard, {{"type", "string"}, {"oneOf", patterns}});
  std::vector<RawConnection> hostile;
  for (int i = 0; i < 16; ++i) {
    hostile.emplace_back(server.port());
    hostile.back().Send(slow);
  }
  // All of them took 5 seconds and more before others were read.
  const auto begin = Clock::now();
  RawConnection easy(server.port());
  easy.Send(with_schema(Ask("Hi"), {{"type", "object"}, {"maxProperties", 0}}));
  CHECK(StatusOf(easy.Receive(30)) == 200);
  CHECK(SecondsSince(begin) < kAtOnce);
  RawConnection stream(server.port());
  Json request = Endless();
  request["max_tokens"] = 300;
  stream.Send(PostOf(request, "Connection: close\r\n"));
  double longest = 0;
  for (auto last = Clock::now(); !stream.Some(30).empty(); last = Clock::now())
    longest = std::max(longest, SecondsSince(last));
  INFO("longest gap: " << longest << " s");
  CHECK(longest < kAtOnce / 2);
  CHECK(SecondsSince(begin) < 2 * kAtOnce);
}

TEST_CASE("A session is free when its answer is computed, though nobody reads it") {
  const ServerProgram server({"--context", "4096", "--max-sessions", "1"});
  RawConnection slow(server.port(), 4096);
  // About 2 MB, more than the sockets hold.
  Json request = Endless();
  request.update({{"max_tokens", 800}, {"logprobs", true}, {"top_logprobs", 20}});
  slow.Send(PostOf(request));
  server.AwaitMetric("vllm:num_requests_running{model_name=\"dsv4-tiny\"}", 1);
  const Json answer = server.Post(kChat, Ask("What is the capital of France?"));
  CHECK(answer["choices"][0]["message"]["content"] == "The capital of France is Paris.");
  // What waited for the reader is whole.
  std::string text;
  for (std::string some;
       text.find("0\r\n\r\n", text.size() < 9 ? 0 : text.size() - 9) == std::string::npos &&
       !(some = slow.Some(10)).empty();)
    text += some;
  CHECK(text.find("data: [DONE]") != std::string::npos);
}

// Names from src/vllm_router/stats/engine_stats.py of vllm-project/production-stack, from the
// metrics that the Gateway API's inference extension asks model servers for, and those of
// vllm/v1/metrics/loggers.py of vllm-project/vllm and its dashboards that have a meaning here.
TEST_CASE("Routers and dashboards for vLLM find the metrics that they read") {
  const ServerProgram server({"--context", "1024"});
  Json request = Ask("What is the capital of France?");
  request["max_tokens"] = 40;
  server.Post(kChat, request);
  const httplib::Result metrics = server.Client().Get("/metrics");
  REQUIRE(metrics);
  const std::string labels = "{model_name=\"dsv4-tiny\"";
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc",
        "vllm:kv_cache_usage_perc", "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total", "vllm:num_preemptions_total",
        "vllm:corrupted_requests_total", "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_cached_total", "vllm:generation_tokens_total"})
    CHECK(metrics->body.find("\n" + std::string(name) + labels + "} ") != std::string::npos);
  for (const char* name :
       {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds", "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens", "vllm:request_params_max_tokens", "vllm:request_params_n",
        "vllm:iteration_tokens_total"}) {
    INFO(name);
    CHECK(metrics->body.find("# TYPE " + std::string(name) + " histogram\n") != std::string::npos);
    CHECK(server.Metric(name + std::string("_count") + labels + "}") > 0);
  }
  CHECK(server.Metric("vllm:request_params_max_tokens_sum" + labels + "}") == 40);
  CHECK(server.Metric("vllm:request_params_n_sum" + labels + "}") == 1);
  CHECK(server.Metric("vllm:request_prompt_tokens_sum" + labels + "}") ==
        server.Metric("vllm:prompt_tokens_total" + labels + "}"));
  CHECK(server.Metric("vllm:request_generation_tokens_sum" + labels + "}") ==
        server.Metric("vllm:generation_tokens_total" + labels + "}"));
  CHECK(metrics->body.find("\nvllm:cache_config_info" + labels +
                           ",block_size=\"256\",num_gpu_blocks=\"") != std::string::npos);
}

// The text format 0.0.4: a family's HELP and TYPE come once and before its samples, a histogram's
// buckets rise to its count.
TEST_CASE("The metrics are what Prometheus reads") {
  const httplib::Result metrics = SharedServer().Client().Get("/metrics");
  REQUIRE(metrics);
  CHECK(metrics->get_header_value("Content-Type") == "text/plain; version=0.0.4");
  REQUIRE(metrics->body.ends_with("\n"));
  std::set<std::string> families;
  std::string family, type;
  double bucket = 0;
  int samples = 0;
  const std::regex sample(
      R"(([a-z0-9]+:[a-zA-Z0-9_]+)\{([a-z_]+="[^"\\]*"(,[a-z_]+="[^"\\]*")*)\} (\S+))");
  std::istringstream lines(metrics->body);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    std::smatch match;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      CHECK(families.insert(family).second);
      CHECK(line.size() > 8 + family.size());
    } else if (line.starts_with("# TYPE ")) {
      REQUIRE(line.starts_with("# TYPE " + family + " "));
      type = line.substr(8 + family.size());
      CHECK(std::set<std::string>{"counter", "gauge", "histogram"}.count(type) == 1);
      bucket = 0;
    } else {
      REQUIRE(std::regex_match(line, match, sample));
      ++samples;
      const double value = std::stod(match[4]);
      const std::string name = match[1];
      if (type != "histogram") {
        CHECK(name == family);
        CHECK((type != "counter" || name.ends_with("_total")));
        continue;
      }
      if (name == family + "_bucket") {
        CHECK(value >= bucket);
        bucket = value;
      } else {
        CHECK((name == family + "_sum" || name == family + "_count"));
        if (name == family + "_count") CHECK(value == bucket);
      }
    }
  }
  CHECK(families.size() > 30);
  CHECK(samples > 300);
}

TEST_CASE("Health is told at once, while the only session computes a long prompt") {
  const ServerProgram server({"--max-sessions", "1", "--backend", "reference"});
  std::string prompt;
  for (int i = 0; i < 600; ++i) prompt += "the cat sat on the mat. ";
  RawConnection longest(server.port());
  longest.Send(PostOf({{"prompt", prompt}, {"max_tokens", 2}}, "", "/v1/completions"));
  server.AwaitMetric("vllm:num_requests_running{model_name=\"dsv4-tiny\"}", 1);
  for (const char* path : {"/health", "/health/live", "/health/ready"}) {
    RawConnection other(server.port());
    const auto begin = Clock::now();
    other.Send(Get(path));
    CHECK(StatusOf(other.Some(5)) == 200);
    // 0.1 s where nothing else runs on the machine.
    CHECK(SecondsSince(begin) < kAtOnce);
  }
}

}  // namespace dsv4::test
