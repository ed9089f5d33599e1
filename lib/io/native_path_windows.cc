// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/io/native_path.h"

namespace dsv4 {
namespace {

// From this length on the system takes paths in its extended form only: a folder needs room for the
// name of a file of 12 characters in the 260.
constexpr size_t kLongPath = 260 - 12;

std::wstring Wide(const std::string& text) {
  const int bytes = static_cast<int>(text.size());
  const int length = MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, nullptr, 0);
  std::wstring wide(static_cast<size_t>(length), L'\0');
  MultiByteToWideChar(CP_UTF8, 0, text.data(), bytes, wide.data(), length);
  return wide;
}

}  // namespace

std::filesystem::path NativePath(const std::string& path) {
  const std::wstring wide = Wide(path);
  if (wide.rfind(LR"(\\?\)", 0) == 0 || wide.empty()) return wide;
  const DWORD room = GetFullPathNameW(wide.c_str(), 0, nullptr, nullptr);
  if (room < kLongPath) return wide;
  std::wstring whole(room, L'\0');
  whole.resize(GetFullPathNameW(wide.c_str(), room, whole.data(), nullptr));
  if (whole.rfind(LR"(\\)", 0) == 0) return LR"(\\?\UNC)" + whole.substr(1);  // \\server\share
  return LR"(\\?\)" + whole;
}

std::string TextOf(const std::filesystem::path& path) {
  const std::wstring& wide = path.native();
  const int length = static_cast<int>(wide.size());
  const int bytes =
      WideCharToMultiByte(CP_UTF8, 0, wide.data(), length, nullptr, 0, nullptr, nullptr);
  std::string text(static_cast<size_t>(bytes), '\0');
  WideCharToMultiByte(CP_UTF8, 0, wide.data(), length, text.data(), bytes, nullptr, nullptr);
  return text;
}

size_t LastSeparator(const std::string& path) { return path.find_last_of("/\\"); }

}  // namespace dsv4
