// SPDX-License-Identifier: Apache-2.0
// A server whose GPU stops answering (tests/support/hanging_gpu.cc): waits for it do not return.
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <string>

#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kChat[] = "/v1/chat/completions";
constexpr char kReopenings[] = "dsv4:reopenings_total{model_name=\"dsv4-tiny\"}";
constexpr std::chrono::seconds kSoon{30};  // far below the default of the limit

// A server whose GPU stops in this step, and that waits for it for a second.
ServerProgram Start(const char* step, const std::vector<std::string>& options) {
  setenv("DSV4_TEST_HANGING_STEPS", step, 1);
  std::vector<std::string> all = {"--backend", "cuda", "--step-limit", "1"};
  all.insert(all.end(), options.begin(), options.end());
  return ServerProgram(all);
}

Json Story() {
  Json request = Ask("Write a short story about Ralf and a ring.");
  request.update({{"max_tokens", 6}, {"ignore_eos", true}});
  return request;
}

// The code of the error that ends the stream of an answer.
std::string ErrorOfStream(const ServerProgram& server) {
  std::string code;
  for (const Json& chunk : Stream(server, kChat, Story())) {
    if (chunk.contains("error")) code = chunk["error"]["code"].get<std::string>();
  }
  return code;
}

}  // namespace

TEST_CASE("--isolate: a worker whose GPU does not answer ends, and another one goes on") {
  ServerProgram server = Start("3", {"--isolate"});
  const Clock::time_point begin = Clock::now();
  CHECK(ErrorOfStream(server) == "device_lost");
  CHECK(Clock::now() - begin >= std::chrono::seconds(1));
  // Waits in the socket until there is a worker.
  const Json answer = server.Post(kChat, Story());
  CHECK(answer["usage"]["completion_tokens"] == 6);
  CHECK(server.Metric(kReopenings) == 1);
  CHECK(server.Post(kChat, Story())["choices"] == answer["choices"]);
  CHECK(Clock::now() - begin < kSoon);
  server.Signal(SIGTERM);
  CHECK(server.Wait() == 0);
}

TEST_CASE(
    "A GPU that does not answer, without --isolate: requests are refused, and the server ends") {
  ServerProgram server = Start("3", {});
  const Clock::time_point begin = Clock::now();
  CHECK(ErrorOfStream(server) == "device_lost");
  const Json refused = server.Post(kChat, Story(), 503)["error"];
  CHECK(refused["code"] == "device_lost");
  // Of the step itself until the server knows that it cannot open the model again.
  CHECK(refused["message"].get<std::string>().find("only another process can use") !=
        std::string::npos);
  CHECK(server.Client().Get("/health")->status == 503);
  server.Signal(SIGTERM);
  CHECK(server.Wait() == 0);
  CHECK(Clock::now() - begin < kSoon);
}

}  // namespace dsv4::test
