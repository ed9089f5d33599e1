// SPDX-License-Identifier: Apache-2.0
#include "tests/capi/cli_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(60);

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In a child: becomes the program. Signals are as a shell leaves them to what it runs.
[[noreturn]] void Become(const std::vector<char*>& command, const std::vector<char*>& environment) {
  for (const int number : {SIGINT, SIGQUIT, SIGPIPE, SIGHUP, SIGTERM}) signal(number, SIG_DFL);
  execve(command[0], command.data(), environment.data());
  _exit(127);
}

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "dsv4-cli-XXXXXX";
  REQUIRE(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  INFO(path);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  REQUIRE(file.flush());
}

TerminalProgram::TerminalProgram(const std::vector<std::string>& command,
                                 const Environment& environment) {
  const std::vector<char*> arguments = Pointers(command), variables = Pointers(environment);
  winsize size{};
  size.ws_col = 100;
  size.ws_row = 30;
  pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ == 0) Become(arguments, variables);
  REQUIRE(pid_ > 0);
  fcntl(terminal_, F_SETFD, FD_CLOEXEC);
}

TerminalProgram::~TerminalProgram() {
  close(terminal_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TerminalProgram::Type(std::string_view keys) {
  while (!keys.empty()) {
    const ssize_t written = write(terminal_, keys.data(), keys.size());
    REQUIRE((written > 0 || errno == EINTR));
    if (written > 0) keys.remove_prefix(static_cast<size_t>(written));
  }
}

bool TerminalProgram::ReadMore() {
  pollfd wait = {.fd = terminal_, .events = POLLIN, .revents = 0};
  const int ready = poll(&wait, 1, 100);
  if (ready <= 0) return true;
  char buffer[65536];
  const ssize_t got = read(terminal_, buffer, sizeof buffer);
  if (got > 0) shown_.append(buffer, static_cast<size_t>(got));
  // EIO when the program has closed its side.
  return got > 0 || (got < 0 && errno == EINTR);
}

std::string TerminalProgram::Await(std::string_view text) {
  const Clock::time_point end = Clock::now() + kPatience;
  bool more = true;
  for (;;) {
    const size_t found = shown_.find(text, awaited_);
    if (found != std::string::npos) {
      const std::string before = shown_.substr(awaited_, found + text.size() - awaited_);
      awaited_ = found + text.size();
      return before;
    }
    if (!more || Clock::now() > end)
      FAIL("\"" << text << "\" does not come after:\n" << shown_.substr(awaited_));
    more = ReadMore();
  }
}

void TerminalProgram::Resize(int columns, int lines) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = static_cast<unsigned short>(lines);
  REQUIRE(ioctl(terminal_, TIOCSWINSZ, &size) == 0);
}

int TerminalProgram::Exit(std::string_view keys) {
  const Clock::time_point end = Clock::now() + kPatience;
  Type(keys);
  while (ReadMore()) {
    Type(keys);
    if (Clock::now() > end) FAIL("the program does not end after:\n" << shown_);
  }
  int status = 0;
  REQUIRE(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return CodeOf(status);
}

CommandResult Run(const std::vector<std::string>& command, const Environment& environment,
                  const std::string& input) {
  const TemporaryFolder folder;
  WriteFile(folder / "in", input);
  const std::vector<char*> arguments = Pointers(command), variables = Pointers(environment);
  const std::string streams[] = {folder / "in", folder / "out", folder / "err"};
  const pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 3; ++i) {
      const int flags = i == 0 ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
      const int file = open(streams[i].c_str(), flags, 0600);
      if (file < 0 || dup2(file, i) < 0) _exit(126);
    }
    Become(arguments, variables);
  }
  REQUIRE(pid > 0);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) REQUIRE(errno == EINTR);
  return {CodeOf(status), ReadFile(streams[1]), ReadFile(streams[2])};
}

}  // namespace dsv4::test
