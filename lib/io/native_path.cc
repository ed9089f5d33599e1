// SPDX-License-Identifier: Apache-2.0
#include "lib/io/native_path.h"

#include <system_error>

namespace dsv4 {

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(NativePath(path), error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(NativePath(path), ignored);
}

bool PathExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(NativePath(path), ignored);
}

std::string FolderOf(const std::string& path) {
  const size_t end = LastSeparator(path);
  if (end == std::string::npos) return ".";
  return path.substr(0, end == 0 ? 1 : end);
}

std::string FileNameOf(const std::string& path) {
  const size_t end = LastSeparator(path);
  return end == std::string::npos ? path : path.substr(end + 1);
}

}  // namespace dsv4
