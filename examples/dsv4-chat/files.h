// SPDX-License-Identifier: Apache-2.0
// Whole files, read and replaced.
#pragma once

#include <string>
#include <string_view>

namespace chat {

// Throws a Failure that names the file when it cannot be read or is longer than 256 MiB.
std::string ReadWholeFile(const std::string& path);

bool FileExists(const std::string& path);

// `text` becomes the content of `path`, readable by its owner only, when it is whole and on the
// disk; what was there stays until then. Throws a Failure that names the file.
void ReplaceFile(const std::string& path, std::string_view text);

}  // namespace chat
