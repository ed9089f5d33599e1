// SPDX-License-Identifier: Apache-2.0
#include "examples/console/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "examples/console/failure.h"
#include "examples/console/terminal.h"

namespace chat {
namespace {

// Of a disk that is full, a quota, a file system that is read-only or fails: no use is wrong.
bool IsDisks(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS || error == EFBIG;
}

[[noreturn]] void FailToWrite(const std::string& path, int error) {
  throw Failure{IsDisks(error) ? kRunTimeError : kUsageError,
                "cannot write " + path + ": " + strerror(error)};
}

[[noreturn]] void Fail(const std::string& what, const std::string& path, const std::string& why) {
  throw Failure{kUsageError, "cannot " + what + " " + path + ": " + why};
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }

 private:
  int number_;
};

}  // namespace

std::string ReadWholeFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) Fail("read", path, strerror(errno));
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t got = read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR && !Interrupted()) continue;
    if (got < 0) Fail("read", path, strerror(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxInputBytes) Fail("read", path, "it is longer than 256 MiB");
  }
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void ReplaceFile(const std::string& path, std::string_view text) {
  std::string temporary = path + ".XXXXXX";
  const Descriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) FailToWrite(path, errno);
  if (WriteAll(file.get(), text) && fsync(file.get()) == 0 &&
      rename(temporary.c_str(), path.c_str()) == 0)
    return;
  const int error = errno;
  unlink(temporary.c_str());
  FailToWrite(path, error);
}

}  // namespace chat
