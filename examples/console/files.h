// SPDX-License-Identifier: Apache-2.0
// Reads and replaces whole files.
#pragma once

#include <string>
#include <string_view>

namespace chat {

// Throws a Failure that names the file if it cannot be read or is longer than 256 MiB.
std::string ReadWholeFile(const std::string& path);

bool FileExists(const std::string& path);

// Replaces `path` by a file with the content `text`, readable by its owner only. The old file stays
// until the new one is complete and on the disk. Throws a Failure that names the file.
void ReplaceFile(const std::string& path, std::string_view text);

}  // namespace chat
