// SPDX-License-Identifier: Apache-2.0
// Programs as a person or a script runs them: on a pseudo-terminal, where what they show is awaited
// and answered, or with files for their streams. Nothing waits for a fixed time.
#ifndef TESTS_CAPI_CLI_PROGRAM_H_
#define TESTS_CAPI_CLI_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace dsv4::test {

// A folder that is gone, with all that is in it, when this is.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& content);

// All of them, as NAME=VALUE.
using Environment = std::vector<std::string>;

// A program with a terminal of 100 columns and 30 lines for all three streams.
class TerminalProgram {
 public:
  TerminalProgram(const std::vector<std::string>& command, const Environment& environment);
  ~TerminalProgram();
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  void Type(std::string_view keys);
  // Waits until `text` is shown after what was awaited before, and returns all that is shown up to
  // its end. Fails the test after 60 seconds, or when the program ends.
  std::string Await(std::string_view text);
  // Tells the terminal's new size, as a window does.
  void Resize(int columns, int lines);
  // Waits for the end, typing `keys` again and again. The exit code; 128 and the signal that ended
  // it.
  int Exit(std::string_view keys = "");

  // All that was shown.
  const std::string& shown() const { return shown_; }

 private:
  // False at the end.
  bool ReadMore();

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string shown_;
  size_t awaited_ = 0;
};

struct CommandResult {
  int code;  // as TerminalProgram::Exit
  std::string out, err;
};

// Runs `command` to its end with `input` on its standard input.
CommandResult Run(const std::vector<std::string>& command, const Environment& environment,
                  const std::string& input = "");

}  // namespace dsv4::test

#endif  // TESTS_CAPI_CLI_PROGRAM_H_
