// SPDX-License-Identifier: Apache-2.0
// A server whose device is lost on command (tests/support/failing_device.cc), or whose worker is
// killed.
#include <signal.h>
#include <stdlib.h>

#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kReopenings[] = "dsv4:reopenings_total{model_name=\"dsv4-tiny\"}";

// A server that loses its device in these steps. These calls that resume or open an engine fail.
ServerProgram Start(const char* lost_steps, const char* failing_resumes,
                    const std::vector<std::string>& options, const char* failing_opens = "") {
  setenv("DSV4_TEST_LOST_STEPS", lost_steps, 1);
  setenv("DSV4_TEST_FAILING_RESUMES", failing_resumes, 1);
  setenv("DSV4_TEST_FAILING_OPENS", failing_opens, 1);
  return ServerProgram(options);
}

Json Story() {
  Json request = Ask("Write a short story about Ralf and a ring.");
  request.update({{"temperature", 1}, {"seed", 5}, {"max_tokens", 8}, {"ignore_eos", true}});
  return request;
}

std::string ContentOf(const Json& answer) {
  return answer["choices"][0]["message"]["content"].get<std::string>();
}

// A stream as it came: its texts, its ids, and the code of the error that ended it.
struct Streamed {
  std::string text, id, error;
  size_t chunks = 0;
};

Streamed StreamOf(const ServerProgram& server, const Json& request) {
  Streamed streamed;
  for (const Json& chunk : Stream(server, kChat, request)) {
    if (chunk.contains("error")) {
      streamed.error = chunk["error"]["code"].get<std::string>();
      continue;
    }
    const std::string id = chunk["id"].get<std::string>();
    CHECK((streamed.id.empty() || streamed.id == id));
    streamed.id = id;
    ++streamed.chunks;
    for (const Json& choice : chunk["choices"]) {
      if (choice["delta"].contains("content") && choice["delta"]["content"].is_string())
        streamed.text += choice["delta"]["content"].get<std::string>();
    }
  }
  return streamed;
}

// The status of /health.
int Health(const ServerProgram& server) {
  const httplib::Result result = server.Client().Get("/health");
  REQUIRE(result);
  return result->status;
}

pid_t WorkerOf(const ServerProgram& server) {
  const std::string task = "/proc/" + std::to_string(server.pid()) + "/task/";
  pid_t worker = 0;
  std::ifstream(task + std::to_string(server.pid()) + "/children") >> worker;
  return worker;
}

}  // namespace

TEST_CASE("A lost device: the model is loaded again, and answers continue where they were") {
  std::string expected;
  size_t chunks = 0;
  {
    const ServerProgram server = Start("", "", {});
    const Streamed whole = StreamOf(server, Story());
    expected = whole.text;
    chunks = whole.chunks;
    REQUIRE(ContentOf(server.Post(kChat, Story())) == expected);
    CHECK(server.Metric(kReopenings) == 0);
  }
  // In the fourth step some have tokens, and some wait for a session.
  const ServerProgram server = Start("4", "", {"--max-sessions", "2"});
  std::vector<std::future<Json>> others;
  for (int i = 0; i < 3; ++i) {
    // Assertions are for the main thread alone.
    others.push_back(std::async(std::launch::async, [&] {
      const httplib::Result result =
          server.Client().Post(kChat, Story().dump(), "application/json");
      return result && result->status == 200 ? Json::parse(result->body) : Json();
    }));
  }
  const Streamed streamed = StreamOf(server, Story());
  CHECK(streamed.text == expected);
  CHECK(streamed.error.empty());
  CHECK(streamed.chunks == chunks);
  for (std::future<Json>& other : others) {
    const Json answer = other.get();
    REQUIRE(answer.is_object());
    CHECK(ContentOf(answer) == expected);
  }
  CHECK(server.Metric(kReopenings) == 1);
  CHECK(Health(server) == 200);
  server.AwaitMetric("vllm:num_requests_running{model_name=\"dsv4-tiny\"}", 0);
}

TEST_CASE("A device that is lost for good: requests are refused, and the server says so") {
  // Lost twice, or not found when the model is to be loaded again.
  for (const auto& [steps, resumes] : {std::pair("5,9", ""), std::pair("5", "1")}) {
    INFO(steps << " " << resumes);
    ServerProgram server = Start(steps, resumes, {});
    CHECK(Health(server) == 200);  // computes a token, the first step
    const Streamed streamed = StreamOf(server, Story());
    CHECK(streamed.error == "device_lost");
    CHECK(streamed.chunks > 0);
    const Json refused = server.Post(kChat, Story(), 503)["error"];
    CHECK(refused["code"] == "device_lost");
    CHECK(Health(server) == 503);
    CHECK(server.Get("/v1/models")["data"].size() == 1);
    CHECK(server.Metric(kReopenings) == (*resumes == '\0' ? 1 : 0));
    server.Signal(SIGTERM);
    CHECK(server.Wait() == 0);
  }
}

TEST_CASE("--isolate: a worker that has lost its device, or was killed, is followed by another") {
  ServerProgram server = Start("3", "", {"--isolate"});
  const Streamed cut = StreamOf(server, Story());
  CHECK(cut.error == "device_lost");
  CHECK(cut.chunks > 0);
  // Waits in the socket until there is a worker.
  const std::string text = ContentOf(server.Post(kChat, Story()));
  CHECK(server.Metric(kReopenings) == 1);
  const pid_t worker = WorkerOf(server);
  REQUIRE(worker > 0);
  REQUIRE(kill(worker, SIGKILL) == 0);
  CHECK(ContentOf(server.Post(kChat, Story())) == text);
  CHECK(server.Metric(kReopenings) == 2);
  server.Signal(SIGTERM);
  CHECK(server.Wait() == 0);
}

TEST_CASE("--isolate: workers that fail again and again end the server") {
  ServerProgram server = Start("1", "", {"--isolate"}, "2,3,4,5,6");
  server.Post(kChat, Story(), 503);
  CHECK(server.Wait() == 5);
}

}  // namespace dsv4::test
