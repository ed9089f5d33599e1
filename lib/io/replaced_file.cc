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
constexpr int kSuffixTail = 4;  // ".tmp": what follows the X

// Makes a renamed file's new name last. Not every file system can: what it says is not asked for.
void SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// The file to be replaced: `path`, or what a symbolic link there points to, which a rename would
// replace itself. A rename would also put a regular file in the place of a device.
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
  file.fd_ = mkostemps(temporary.data(), kSuffixTail, O_CLOEXEC);
  if (file.fd_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound(path, ": its folder does not exist");
    return SystemError(path, "create a file in its folder", errno);
  }
  file.temporary_ = std::move(temporary);
  // Taking the space now turns a full disk into an error; a mapped file would raise SIGBUS.
  int error;
  do {
    error = posix_fallocate(file.fd_, 0, bytes);
  } while (error == EINTR);  // a signal of the host's; what was taken stays
  if (error != 0) return SystemError(path, "take the space for it", error);
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd_, 0);
  if (data == MAP_FAILED) return SystemError(path, "map its content into memory", errno);
  file.data_ = static_cast<uint8_t*>(data);
  file.size_ = bytes;
  return file;
}

ReplacedFile::ReplacedFile(ReplacedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

ReplacedFile::~ReplacedFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status ReplacedFile::Flush(int64_t begin, int64_t end) {
  if (msync(data_ + begin, static_cast<size_t>(end - begin), MS_SYNC) == 0) return absl::OkStatus();
  return SystemError(path_, "write to the disk", errno);
}

absl::Status ReplacedFile::Commit() {
  DSV4_RETURN_IF_ERROR(Flush(0, size_));
  if (fsync(fd_) != 0) return SystemError(path_, "write to the disk", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return SystemError(path_, "put the new file in its place", errno);
  }
  temporary_.clear();
  SyncFolderOf(path_);
  return absl::OkStatus();
}

}  // namespace dsv4
