// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/dsv4-server/server_program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr char kModel[] = DSV4_SOURCE_DIR "/models/dsv4-tiny";

}  // namespace

ServerProgram::ServerProgram(const std::vector<std::string>& options, const std::string& model) {
  std::vector<std::string> command = {DSV4_SERVER, "--model", model.empty() ? kModel : model,
                                      "--port", "0"};
  command.insert(command.end(), options.begin(), options.end());
  std::vector<char*> arguments;
  for (std::string& text : command) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when ctest ends this test
    // Under ThreadSanitizer a finding ends the server, and with it the test: what it prints is not
    // read, and its exit code mostly not asked for.
    const char* const sanitizer = getenv("TSAN_OPTIONS");
    setenv("TSAN_OPTIONS", ((sanitizer ? sanitizer : "") + std::string(":halt_on_error=1")).c_str(),
           1);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  FILE* out = fdopen(ends[0], "r");
  char line[256] = "";
  const bool came = fgets(line, sizeof line, out) != nullptr;
  fclose(out);
  INFO(line);
  REQUIRE(came);
  port_ = atoi(std::string(line).substr(std::string(line).rfind(':') + 1).c_str());
  REQUIRE(port_ > 0);
}

ServerProgram::~ServerProgram() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ServerProgram::Signal(int number) const { kill(pid_, number); }

int ServerProgram::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

httplib::Client ServerProgram::Client() const {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(60);
  return client;
}

Json ServerProgram::Post(const std::string& path, const Json& body, int status) const {
  const httplib::Result result = Client().Post(path, body.dump(), "application/json");
  INFO(path << " " << body.dump());
  REQUIRE(result);
  INFO(result->body);
  REQUIRE(result->status == status);
  return Json::parse(result->body);
}

Json ServerProgram::Get(const std::string& path) const {
  const httplib::Result result = Client().Get(path);
  REQUIRE(result);
  REQUIRE(result->status == 200);
  return Json::parse(result->body);
}

double ServerProgram::Metric(const std::string& name) const {
  const httplib::Result result = Client().Get("/metrics");
  REQUIRE(result);
  const size_t line = result->body.find("\n" + name + " ");
  return line == std::string::npos ? 0 : atof(result->body.c_str() + line + name.size() + 2);
}

void ServerProgram::AwaitMetric(const std::string& name, double value) const {
  double seen = -1;
  for (int i = 0; i < 6000 && seen != value; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    seen = Metric(name);
  }
  INFO(name);
  REQUIRE(seen == value);
}

const ServerProgram& SharedServer() {
  static const ServerProgram server({"--max-sessions", "8"});
  return server;
}

std::vector<Json> ChunksOf(const std::string& stream) {
  std::vector<Json> chunks;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    REQUIRE(end != std::string::npos);
    REQUIRE(stream.compare(begin, 6, "data: ") == 0);
    const std::string data = stream.substr(begin + 6, end - begin - 6);
    begin = end + 2;
    if (data == "[DONE]") {
      REQUIRE(begin == stream.size());
      return chunks;
    }
    chunks.push_back(Json::parse(data));
  }
  FAIL("the stream has no end: " << stream);
  return chunks;
}

namespace {

std::string StreamText(const ServerProgram& server, const std::string& path, Json body) {
  body["stream"] = true;
  const httplib::Result result = server.Client().Post(path, body.dump(), "application/json");
  REQUIRE(result);
  INFO(result->body);
  REQUIRE(result->status == 200);
  REQUIRE(result->get_header_value("Content-Type") == "text/event-stream");
  return result->body;
}

}  // namespace

std::vector<Json> Stream(const ServerProgram& server, const std::string& path, Json body) {
  return ChunksOf(StreamText(server, path, std::move(body)));
}

std::vector<Json> Events(const ServerProgram& server, const std::string& path, Json body) {
  const std::string stream = StreamText(server, path, std::move(body));
  std::vector<Json> events;
  for (size_t begin = 0; begin < stream.size();) {
    const size_t end = stream.find("\n\n", begin);
    const size_t data = stream.find("\ndata: ", begin);
    REQUIRE(end != std::string::npos);
    REQUIRE(data < end);
    events.push_back(Json::parse(stream.substr(data + 7, end - data - 7)));
    REQUIRE(stream.substr(begin, data - begin) ==
            "event: " + events.back()["type"].get<std::string>());
    begin = end + 2;
  }
  return events;
}

Json Ask(const std::string& question) {
  return {{"temperature", 0},
          {"messages", Json::array({{{"role", "user"}, {"content", question}}})}};
}

std::vector<Json> Recorded(const std::string& kind) {
  static const Json all =
      Json::parse(std::ifstream(std::string(kModel) + "/gates.json")).at("cases");
  std::vector<Json> cases;
  for (const Json& recorded : all) {
    if (recorded["kind"] == kind) cases.push_back(recorded);
  }
  REQUIRE(!cases.empty());
  return cases;
}

Json RequestOf(const Json& recorded) {
  Json request = {{"temperature", 0}, {"messages", recorded["messages"]}};
  if (recorded["messages"][0].contains("tools")) {
    request["messages"][0].erase("tools");
    request["tools"] = recorded["messages"][0]["tools"];
  }
  if (recorded["thinking"] == true) request["thinking"] = {{"type", "enabled"}};
  return request;
}

}  // namespace dsv4::test
