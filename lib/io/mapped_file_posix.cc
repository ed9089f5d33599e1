// SPDX-License-Identifier: Apache-2.0
#include "lib/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

struct OpenFile {
  int fd = -1;
  int64_t size = 0;  // bytes

  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept : fd(std::exchange(other.fd, -1)), size(other.size) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
};

absl::StatusOr<OpenFile> OpenRegularFile(const std::string& path) {
  if (path.empty()) return InvalidArgument("the path of a file is empty");
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("a file path has a NUL byte after \"", path.c_str(), "\"");
  }
  OpenFile file;
  // Without O_NONBLOCK, opening a FIFO would wait for its writer.
  file.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return SystemError(path, "open", errno);
  struct stat info;
  if (fstat(file.fd, &info) != 0) return SystemError(path, "read the size", errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  file.size = info.st_size;
  return file;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const OpenFile file, OpenRegularFile(path));
  MappedFile mapped;
  mapped.path_ = path;
  if (file.size == 0) return mapped;
  void* data = mmap(nullptr, static_cast<size_t>(file.size), PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) return SystemError(path, "map into memory", errno);
  mapped.data_ = static_cast<const uint8_t*>(data);
  mapped.size_ = file.size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

void MappedFile::AdviseRandomAccess(bool random) const {
  if (data_ == nullptr) return;
  madvise(const_cast<uint8_t*>(data_), static_cast<size_t>(size_),
          random ? MADV_RANDOM : MADV_NORMAL);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  DSV4_ASSIGN_OR_RETURN(const OpenFile file, OpenRegularFile(path));
  if (file.size > max_bytes) {
    return Corrupt(path, ": has ", file.size, " bytes; at most ", max_bytes, " are read");
  }
  std::string content(static_cast<size_t>(file.size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = read(file.fd, content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "read", errno);
    if (got == 0) break;  // the file was shortened meanwhile
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

}  // namespace dsv4
