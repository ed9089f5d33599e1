// SPDX-License-Identifier: Apache-2.0
// The manifest makes narrow paths UTF-8.
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <windows.h>
#undef ReplaceFile  // a macro of that header

#include <cstring>

#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/terminal.h"

namespace chat {
namespace {

// A scanner that looks at the old file keeps it from being replaced for a moment.
constexpr int kTries = 20;
constexpr DWORD kPause = 25;  // milliseconds

[[noreturn]] void FailToWrite(const std::string& path, int error) {
  const bool is_disks = error == ENOSPC || error == EIO || error == EROFS || error == EFBIG;
  throw Failure{is_disks ? kRunTimeError : kUsageError,
                "cannot write " + path + ": " + strerror(error)};
}

[[noreturn]] void Fail(const std::string& what, const std::string& path, const std::string& why) {
  throw Failure{kUsageError, "cannot " + what + " " + path + ": " + why};
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  void Close() {
    if (number_ >= 0) _close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

bool Replace(const std::string& from, const std::string& to) {
  for (int attempt = 1;; ++attempt) {
    if (MoveFileExA(from.c_str(), to.c_str(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
      return true;
    const DWORD error = GetLastError();
    if ((error != ERROR_ACCESS_DENIED && error != ERROR_SHARING_VIOLATION) || attempt == kTries)
      return false;
    Sleep(kPause);
  }
}

}  // namespace

std::string ReadWholeFile(const std::string& path) {
  const Descriptor file(_open(path.c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT));
  if (file.get() < 0) Fail("read", path, strerror(errno));
  std::string text;
  char buffer[65536];
  for (;;) {
    const int got = _read(file.get(), buffer, sizeof buffer);
    if (got < 0) Fail("read", path, strerror(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxInputBytes) Fail("read", path, "it is longer than 256 MiB");
  }
}

bool FileExists(const std::string& path) { return _access(path.c_str(), 0) == 0; }

void ReplaceFile(const std::string& path, std::string_view text) {
  const std::string temporary = path + "." + std::to_string(GetCurrentProcessId());
  // A user's folders let nobody else read.
  Descriptor file(_open(temporary.c_str(),
                        _O_WRONLY | _O_BINARY | _O_CREAT | _O_EXCL | _O_NOINHERIT,
                        _S_IREAD | _S_IWRITE));
  if (file.get() < 0) FailToWrite(path, errno);
  const bool written = WriteAll(file.get(), text) && _commit(file.get()) == 0;
  const int error = errno;
  file.Close();
  if (written && Replace(temporary, path)) return;
  DeleteFileA(temporary.c_str());
  FailToWrite(path, written ? EACCES : error);
}

}  // namespace chat
