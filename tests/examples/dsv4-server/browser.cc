// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/dsv4-server/browser.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <sstream>

#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

constexpr int kMostMs = 20000;  // without an answer

// Base64, without line breaks.
std::string Decoded(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(digits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 255);
  }
  return out;
}

}  // namespace

std::string Browser::Find() {
  std::istringstream folders(getenv("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
      const std::string path = folder + "/" + name;
      if (access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "";
}

Browser::Browser(const std::string& program, const std::string& url) {
  char folder[] = "/tmp/dsv4-browser-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  folder_ = folder;
  const std::string profile = "--user-data-dir=" + folder_;
  int to[2], from[2];
  REQUIRE(pipe(to) == 0);
  REQUIRE(pipe(from) == 0);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Chromium reads from 3 and writes to 4. The ends may have these numbers themselves.
    const int input = fcntl(to[0], F_DUPFD, 10), output = fcntl(from[1], F_DUPFD, 10);
    dup2(input, 3);
    dup2(output, 4);
    for (int i = 5; i < 64; ++i) close(i);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    execl(program.c_str(), program.c_str(), "--headless=new", "--no-sandbox", "--disable-gpu",
          "--disable-dev-shm-usage", "--no-first-run", "--window-size=860,1080",
          "--remote-debugging-pipe", profile.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
  const std::string target = Call("Target.createTarget", {{"url", url}})["targetId"];
  session_ = Call("Target.attachToTarget", {{"targetId", target}, {"flatten", true}})["sessionId"];
  Call("Runtime.enable", Json::object());
  Await("document.readyState === 'complete' && location.protocol === 'http:'");
}

Browser::~Browser() {
  close(to_);
  close(from_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Browser::Json Browser::Receive() {
  for (;;) {
    if (const size_t end = rest_.find('\0'); end != std::string::npos) {
      Json message = Json::parse(rest_.substr(0, end));
      rest_.erase(0, end + 1);
      return message;
    }
    pollfd wait{from_, POLLIN, 0};
    REQUIRE(poll(&wait, 1, kMostMs) > 0);
    char buffer[65536];
    const ssize_t count = read(from_, buffer, sizeof buffer);
    REQUIRE(count > 0);
    rest_.append(buffer, static_cast<size_t>(count));
  }
}

Browser::Json Browser::Call(const std::string& method, const Json& params) {
  const int id = next_id_++;
  Json request = {{"id", id}, {"method", method}, {"params", params}};
  if (!session_.empty()) request["sessionId"] = session_;
  const std::string text = request.dump() + '\0';
  REQUIRE(write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  for (;;) {
    const Json message = Receive();
    if (message.value("method", "") == "Runtime.exceptionThrown")
      exceptions_.push_back(message["params"].dump());
    if (message.value("id", 0) != id) continue;
    INFO(method << ": " << message.dump());
    REQUIRE(message.contains("result"));
    return message["result"];
  }
}

Browser::Json Browser::Evaluate(const std::string& script) {
  const Json answer =
      Call("Runtime.evaluate",
           {{"expression", script}, {"awaitPromise", true}, {"returnByValue", true}});
  INFO(script << ": " << answer.dump());
  REQUIRE(!answer.contains("exceptionDetails"));
  return answer["result"].value("value", Json());
}

void Browser::Await(const std::string& script) {
  const auto begin = std::chrono::steady_clock::now();
  while (Evaluate(script) != true) {
    INFO(script);
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(kMostMs));
    usleep(20000);
  }
}

void Browser::PreferColors(const std::string& scheme) {
  Call("Emulation.setEmulatedMedia",
       {{"features", Json::array({{{"name", "prefers-color-scheme"}, {"value", scheme}}})}});
}

void Browser::Reload() {
  Evaluate("window.isOld = true");
  Call("Page.reload", Json::object());
  Await("!window.isOld && document.readyState === 'complete'");
}

std::string Browser::Screenshot() {
  return Decoded(Call("Page.captureScreenshot", {{"format", "png"}})["data"]);
}

}  // namespace dsv4::test
