// SPDX-License-Identifier: Apache-2.0
// Paths. Everywhere in the library they are strings: on Linux of any bytes, on Windows of UTF-8,
// where parts are separated by / or \.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace dsv4 {

// The path for calls of the system and of std::filesystem. Windows: of any length. What is not
// UTF-8 names no file there.
std::filesystem::path NativePath(const std::string& path);
// The reverse, for names that the system gives.
std::string TextOf(const std::filesystem::path& path);

// Of a file; 0 if there is none.
int64_t FileBytes(const std::string& path);
bool IsFolder(const std::string& path);
bool PathExists(const std::string& path);

// The position of the path's last separator; std::string::npos if there is none.
size_t LastSeparator(const std::string& path);
// "." for a name alone.
std::string FolderOf(const std::string& path);
std::string FileNameOf(const std::string& path);

}  // namespace dsv4
