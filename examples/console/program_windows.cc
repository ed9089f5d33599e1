// SPDX-License-Identifier: Apache-2.0
// What every program for Windows does before main, in place of what the system does elsewhere: the
// standard streams carry bytes as they are, without CR before LF; the console takes them as UTF-8
// and obeys escape sequences, and gets its own settings back at the end; HOME names the user's
// folder.
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

UINT output_before = 0;
DWORD modes_before[2] = {0, 0};
constexpr DWORD kStreams[2] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};

void RestoreConsole() {
  if (output_before != 0) SetConsoleOutputCP(output_before);
  for (int i = 0; i < 2; ++i) {
    if (modes_before[i] != 0) SetConsoleMode(GetStdHandle(kStreams[i]), modes_before[i]);
  }
}

const bool prepared = [] {
  for (int stream = 0; stream < 3; ++stream) _setmode(stream, _O_BINARY);
  output_before = GetConsoleOutputCP();  // 0 without a console
  if (output_before != 0) SetConsoleOutputCP(CP_UTF8);
  for (int i = 0; i < 2; ++i) {
    const HANDLE stream = GetStdHandle(kStreams[i]);
    if (!GetConsoleMode(stream, &modes_before[i])) {
      modes_before[i] = 0;  // no console
    } else {
      SetConsoleMode(
          stream, modes_before[i] | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
  }
  std::atexit(RestoreConsole);
  const char* const profile = std::getenv("USERPROFILE");
  if (std::getenv("HOME") == nullptr && profile != nullptr) {
    std::string home = profile;
    std::replace(home.begin(), home.end(), '\\', '/');
    _putenv_s("HOME", home.c_str());
  }
  return true;
}();

}  // namespace
