// SPDX-License-Identifier: Apache-2.0
// The configurations of docs/server.md for nginx and Caddy, in front of a server: a client never
// gets the answer to another's request, streams pass as they are written, and chats work. Proxies
// that are not installed are named, and skipped.
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/examples/dsv4-server/raw_client.h"
#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

// The block of this language in the document, with other ports.
std::string Configuration(const std::string& language, int server_port, int proxy_port) {
  std::ifstream in(DSV4_SOURCE_DIR "/docs/server.md");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  const std::string fence = "```" + language + "\n";
  const size_t begin = document.find(fence);
  REQUIRE(begin != std::string::npos);
  std::string text = document.substr(begin + fence.size());
  text.resize(text.find("```"));
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  };
  replace("127.0.0.1:8000", "127.0.0.1:" + std::to_string(server_port));
  replace("8080", (language == "nginx" ? "127.0.0.1:" : "") + std::to_string(proxy_port));
  return text;
}

// The first of these that exists; "" for none.
std::string Program(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

class Proxy {
 public:
  Proxy(const std::string& name, const std::string& program, int server_port)
      : port_(server_port > 60000 ? server_port - 1 : server_port + 1) {
    REQUIRE(mkdtemp(folder_) != nullptr);
    const std::string file = folder_ + std::string("/configuration");
    std::string text = Configuration(name, server_port, port_);
    std::vector<std::string> command;
    if (name == "nginx") {
      const std::string place = folder_;
      std::string paths = "access_log " + place + "/access;";
      for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
        paths += std::string(kind) + "_temp_path " + place + "/" + kind + ";";
      text = "daemon off; worker_processes 1; pid " + place + "/pid;\nevents {}\nhttp {\n" + paths +
             "\n" + text + "}\n";
      command = {program, "-p", place, "-e", place + "/errors", "-c", file};
    } else {
      text = "{\n  admin off\n  auto_https off\n}\n" + text;
      command = {program, "run", "--adapter", "caddyfile", "--config", file};
    }
    std::ofstream(file) << text;
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      setpgid(0, 0);
      setenv("HOME", folder_, 1);
      setenv("XDG_DATA_HOME", folder_, 1);
      setenv("XDG_CONFIG_HOME", folder_, 1);
      const std::string log = folder_ + std::string("/output");
      if (freopen(log.c_str(), "w", stderr) == nullptr) _exit(126);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
  }
  ~Proxy() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    const std::string remove = std::string("rm -rf ") + folder_;
    if (system(remove.c_str()) != 0) std::perror(folder_);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  int port() const { return port_; }

  // Until it answers for the server.
  void Await() const {
    for (int i = 0; i < 200; ++i) {
      httplib::Client client("127.0.0.1", port_);
      const httplib::Result result = client.Get("/health");
      if (result && result->status == 200) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL("the proxy does not start");
  }

 private:
  char folder_[32] = "/tmp/dsv4-proxy-XXXXXX";
  int port_;
  pid_t pid_ = -1;
};

std::string Exchange(int port, const std::string& bytes) {
  RawConnection connection(port);
  connection.Send(bytes);
  return connection.Receive(20);
}

std::string Post(const std::string& prompt, int tokens, const std::string& headers) {
  const Json body = {
      {"prompt", prompt}, {"max_tokens", tokens}, {"temperature", 0}, {"echo", true}};
  const std::string text = body.dump();
  return "POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + headers +
         "Content-Type: application/json\r\nContent-Length: " + std::to_string(text.size()) +
         "\r\n\r\n" + text;
}

// The body of a request that has none, which must never become a request of its own.
std::string Hiding(const std::string& method, const std::string& inner, bool chunks) {
  std::string head = method + " /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
  char size[16];
  std::snprintf(size, sizeof size, "%zx", inner.size());
  if (chunks)
    return head + "Transfer-Encoding: chunked\r\n\r\n" + size + "\r\n" + inner + "\r\n0\r\n\r\n";
  return head + "Content-Length: " + std::to_string(inner.size()) + "\r\n\r\n" + inner;
}

void Try(const std::string& name, const std::string& program) {
  INFO(name);
  const std::string close = "Connection: close\r\n", key = "Authorization: Bearer K\r\n";
  const ServerProgram server({"--context", "2048", "--api-key", "K"});
  const Proxy proxy(name, program, server.port());
  proxy.Await();
  int wrong = 0, unlocked = 0, answered = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string method = i % 3 == 0 ? "GET" : i % 3 == 1 ? "OPTIONS" : "DELETE";
    // A whole request, and the beginning of one that the next client's key would complete.
    Exchange(proxy.port(), Hiding(method, Post("TEXT OF THE ATTACKER", 4, key), i % 2 == 1));
    const std::string victim = Exchange(proxy.port(), Post("I am the victim.", 4, close + key));
    wrong += victim.find("TEXT OF THE ATTACKER") != std::string::npos;
    answered += victim.find("I am the victim.") != std::string::npos;
    Exchange(proxy.port(), Hiding(method, "GET /v1/models HTTP/1.1\r\nX: ", i % 2 == 1));
    const std::string next = Exchange(proxy.port(), Post("I am the third.", 4, close + key));
    unlocked += next.find("\"object\":\"list\"") != std::string::npos;
    wrong += next.find("I am the victim.") != std::string::npos;
    answered += next.find("I am the third.") != std::string::npos;
  }
  CHECK(wrong == 0);
  CHECK(unlocked == 0);
  CHECK(answered == 100);

  // The first piece of a stream comes long before the last one.
  Json body = Ask("Write a short story about Ralf and a ring.");
  body.update({{"ignore_eos", true}, {"stream", true}, {"max_tokens", 1500}});
  httplib::Client client("127.0.0.1", proxy.port());
  client.set_read_timeout(60);
  std::string text;
  int pieces = 0;
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.headers = {{"Authorization", "Bearer K"}, {"Content-Type", "application/json"}};
  request.body = body.dump();
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    text.append(data, size);
    ++pieces;
    return true;
  };
  REQUIRE(client.send(request));
  CHECK(ChunksOf(text).size() == 1501);
  CHECK(pieces > 10);
}

}  // namespace

TEST_CASE("Behind a proxy no client gets another's answer") {
  const struct {
    const char* name;
    std::vector<std::string> paths;
  } kProxies[] = {{"nginx", {"/usr/sbin/nginx", "/usr/bin/nginx"}},
                  {"caddy", {"/usr/bin/caddy", "/usr/local/bin/caddy"}}};
  for (const auto& [name, paths] : kProxies) {
    const std::string program = Program(paths);
    if (program.empty())
      std::printf("skipped: %s is not installed (apt-get install %s)\n", name, name);
    else
      Try(name, program);
  }
}

}  // namespace dsv4::test
