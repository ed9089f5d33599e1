// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <array>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/native_path.h"
#include "lib/io/replaced_file.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

// Another process that reads the old file, a virus scanner for one, keeps it from being replaced
// for as long as it has it open without leave to delete it.
constexpr int kTries = 20;
constexpr DWORD kPause = 25;  // milliseconds

int LastError() { return static_cast<int>(GetLastError()); }
HANDLE HandleOf(intptr_t handle) { return reinterpret_cast<HANDLE>(handle); }

// The file to replace: `path`, or its target if it is a symbolic link, because a move would replace
// the link. Refuses folders and devices.
absl::StatusOr<std::string> ReplaceablePath(const std::string& path) {
  const DWORD attributes = GetFileAttributesW(NativePath(path).c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) return path;  // nothing there, or for the new file
  const HANDLE file = CreateFileW(NativePath(path).c_str(), 0,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
  if (file == INVALID_HANDLE_VALUE) {
    if ((attributes & FILE_ATTRIBUTE_REPARSE_POINT) == 0) return path;
    return SystemError(path, "follow the symbolic link", LastError());
  }
  BY_HANDLE_FILE_INFORMATION info{};
  const bool regular = GetFileType(file) == FILE_TYPE_DISK &&
                       GetFileInformationByHandle(file, &info) &&
                       (info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0;
  std::wstring target;
  if (regular && (attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) {
    target.resize(GetFinalPathNameByHandleW(file, nullptr, 0, FILE_NAME_NORMALIZED));
    target.resize(GetFinalPathNameByHandleW(file, target.data(), static_cast<DWORD>(target.size()),
                                            FILE_NAME_NORMALIZED));
  }
  CloseHandle(file);
  if (!regular) return InvalidArgument(path, ": not a regular file");
  return target.empty() ? path : TextOf(target);
}

// Six characters that no other thread or process takes at this time.
std::string Unique() {
  static std::atomic<uint32_t> calls{0};
  LARGE_INTEGER time;
  QueryPerformanceCounter(&time);
  const uint64_t mixed = (static_cast<uint64_t>(time.QuadPart) + calls.fetch_add(1) * 977 +
                          GetCurrentProcessId() * uint64_t{40503}) *
                         0x9e3779b97f4a7c15;
  return absl::StrFormat("%06x", mixed >> 40);
}

}  // namespace

absl::StatusOr<ReplacedFile> ReplacedFile::Create(const std::string& path, int64_t bytes) {
  if (path.find('\0') != std::string::npos) {
    return InvalidArgument("a file path has a NUL byte after \"", path.c_str(), "\"");
  }
  ReplacedFile file;
  DSV4_ASSIGN_OR_RETURN(file.path_, ReplaceablePath(path));
  HANDLE handle = INVALID_HANDLE_VALUE;
  std::string temporary;
  // The new file has the permissions that its folder hands on.
  for (int attempt = 0; attempt < kTries && handle == INVALID_HANDLE_VALUE; ++attempt) {
    temporary = absl::StrCat(file.path_, ".", Unique(), ".tmp");
    handle = CreateFileW(NativePath(temporary).c_str(), GENERIC_READ | GENERIC_WRITE,
                         FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr, CREATE_NEW,
                         FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE && GetLastError() != ERROR_FILE_EXISTS) break;
  }
  if (handle == INVALID_HANDLE_VALUE) {
    const int error = LastError();
    if (KindOf(error) == SystemErrorKind::kNotFound) {
      return NotFound(path, ": its folder does not exist");
    }
    return SystemError(path, "create a file in its folder", error);
  }
  file.handle_ = reinterpret_cast<intptr_t>(handle);
  file.temporary_ = std::move(temporary);
  // Takes the space on disk, so that a full one is an error here.
  const HANDLE mapping =
      CreateFileMappingW(handle, nullptr, PAGE_READWRITE, static_cast<DWORD>(bytes >> 32),
                         static_cast<DWORD>(bytes), nullptr);
  if (mapping == nullptr) return SystemError(path, "allocate its space", LastError());
  void* const data = MapViewOfFile(mapping, FILE_MAP_WRITE, 0, 0, 0);
  const int error = LastError();
  CloseHandle(mapping);  // the view keeps it
  if (data == nullptr) return SystemError(path, "map its content into memory", error);
  file.data_ = static_cast<uint8_t*>(data);
  file.size_ = bytes;
  return file;
}

ReplacedFile::~ReplacedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
  if (handle_ != -1) CloseHandle(HandleOf(handle_));
  if (!temporary_.empty()) DeleteFileW(NativePath(temporary_).c_str());
}

absl::Status ReplacedFile::Flush(int64_t begin, int64_t end) {
  if (FlushViewOfFile(data_ + begin, static_cast<SIZE_T>(end - begin))) return absl::OkStatus();
  return SystemError(path_, "write to the disk", LastError());
}

absl::Status ReplacedFile::Commit() {
  DSV4_RETURN_IF_ERROR(Flush(0, size_));
  if (!FlushFileBuffers(HandleOf(handle_))) {
    return SystemError(path_, "write to the disk", LastError());
  }
  // What is mapped or open cannot be moved.
  UnmapViewOfFile(std::exchange(data_, nullptr));
  CloseHandle(HandleOf(std::exchange(handle_, -1)));
  for (int attempt = 1;; ++attempt) {
    if (MoveFileExW(NativePath(temporary_).c_str(), NativePath(path_).c_str(),
                    MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
      break;
    }
    const int error = LastError();
    const bool in_use = error == ERROR_ACCESS_DENIED || error == ERROR_SHARING_VIOLATION ||
                        error == ERROR_USER_MAPPED_FILE;
    if (!in_use || attempt == kTries) {
      return SystemError(path_, "put the new file in its place", error);
    }
    Sleep(kPause);
  }
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace dsv4
