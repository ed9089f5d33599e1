// SPDX-License-Identifier: Apache-2.0
#include "lib/io/replaced_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

constexpr char kSuffix[] = ".XXXXXX.tmp";
constexpr int kSuffixTail = 4;  // the length of ".tmp", behind the X

// Makes a rename durable. Not every file system supports this, so errors are ignored.
void SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// The file to replace: `path`, or its target if it is a symbolic link, because a rename would
// replace the link. Refuses everything but regular files: a rename would replace a device, too.
absl::StatusOr<std::string> ReplaceablePath(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return path;  // nothing there, or for the new file to say
  std::string resolved = path;
  if (S_ISLNK(info.st_mode)) {
    char target[PATH_MAX];
    if (realpath(path.c_str(), target) == nullptr || stat(target, &info) != 0) {
      return SystemError(path, "follow the symbolic link", errno);
    }
    resolved = target;
  }
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  return resolved;
}

}  // namespace

absl::StatusOr<ReplacedFile> ReplacedFile::Create(const std::string& path, int64_t bytes) {
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("a file path has a NUL byte after \"", path.c_str(), "\"");
  }
  ReplacedFile file;
  DSV4_ASSIGN_OR_RETURN(file.path_, ReplaceablePath(path));
  std::string temporary = file.path_ + kSuffix;
  const int fd = mkostemps(temporary.data(), kSuffixTail, O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound(path, ": its folder does not exist");
    return SystemError(path, "create a file in its folder", errno);
  }
  file.handle_ = fd;
  file.temporary_ = std::move(temporary);
  // Taking the space now turns a full disk into an error; a mapped file would raise SIGBUS.
  int error;
  do {
    error = posix_fallocate(fd, 0, bytes);
  } while (error == EINTR);  // a signal of the host program; the space allocated so far is kept
  if (error != 0) return SystemError(path, "allocate its space", error);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return SystemError(path, "map its content into memory", errno);
  file.data_ = static_cast<uint8_t*>(data);
  file.size_ = bytes;
  return file;
}

ReplacedFile::~ReplacedFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
  if (handle_ >= 0) close(static_cast<int>(handle_));
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status ReplacedFile::Flush(int64_t begin, int64_t end) {
  if (msync(data_ + begin, static_cast<size_t>(end - begin), MS_SYNC) == 0) return absl::OkStatus();
  return SystemError(path_, "write to the disk", errno);
}

absl::Status ReplacedFile::Commit() {
  DSV4_RETURN_IF_ERROR(Flush(0, size_));
  if (fsync(static_cast<int>(handle_)) != 0) return SystemError(path_, "write to the disk", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return SystemError(path_, "put the new file in its place", errno);
  }
  temporary_.clear();
  SyncFolderOf(path_);
  return absl::OkStatus();
}

}  // namespace dsv4
