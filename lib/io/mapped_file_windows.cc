// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/io/native_path.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

int LastError() { return static_cast<int>(GetLastError()); }

struct OpenFile {
  HANDLE handle = INVALID_HANDLE_VALUE;
  int64_t size = 0;  // bytes

  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept
      : handle(std::exchange(other.handle, INVALID_HANDLE_VALUE)), size(other.size) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
  }
};

absl::StatusOr<OpenFile> OpenRegularFile(const std::string& path) {
  if (path.empty()) return InvalidArgument("the path of a file is empty");
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("a file path has a NUL byte after \"", path.c_str(), "\"");
  }
  OpenFile file;
  // With FILE_FLAG_BACKUP_SEMANTICS folders open, too, and can be told from what is not there.
  file.handle = CreateFileW(NativePath(path).c_str(), GENERIC_READ,
                            FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                            OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file.handle == INVALID_HANDLE_VALUE) return SystemError(path, "open", LastError());
  BY_HANDLE_FILE_INFORMATION info{};
  if (GetFileType(file.handle) != FILE_TYPE_DISK) {
    return InvalidArgument(path, ": not a regular file");
  }
  if (!GetFileInformationByHandle(file.handle, &info)) {
    return SystemError(path, "read the size", LastError());
  }
  if ((info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0) {
    return InvalidArgument(path, ": not a regular file");
  }
  file.size = static_cast<int64_t>(uint64_t{info.nFileSizeHigh} << 32 | info.nFileSizeLow);
  return file;
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const OpenFile file, OpenRegularFile(path));
  MappedFile mapped;
  mapped.path_ = path;
  if (file.size == 0) return mapped;
  const HANDLE mapping = CreateFileMappingW(file.handle, nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) return SystemError(path, "map into memory", LastError());
  const void* const data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
  const int error = LastError();
  CloseHandle(mapping);  // the view keeps it
  if (data == nullptr) return SystemError(path, "map into memory", error);
  mapped.data_ = static_cast<const uint8_t*>(data);
  mapped.size_ = file.size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
}

// Windows has such advice for files that are opened, none for views.
void MappedFile::AdviseRandomAccess(bool) const {}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  constexpr size_t kLargestRead = size_t{1} << 30;
  DSV4_ASSIGN_OR_RETURN(const OpenFile file, OpenRegularFile(path));
  if (file.size > max_bytes) {
    return Corrupt(path, ": has ", file.size, " bytes; at most ", max_bytes, " are read");
  }
  std::string content(static_cast<size_t>(file.size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const auto wanted = static_cast<DWORD>(std::min(content.size() - done, kLargestRead));
    DWORD got = 0;
    if (!::ReadFile(file.handle, content.data() + done, wanted, &got, nullptr)) {
      return SystemError(path, "read", LastError());
    }
    if (got == 0) break;  // the file was shortened meanwhile
    done += got;
  }
  content.resize(done);
  return content;
}

}  // namespace dsv4
