// SPDX-License-Identifier: Apache-2.0
#include "lib/io/native_path.h"

namespace dsv4 {

std::filesystem::path NativePath(const std::string& path) { return path; }

std::string TextOf(const std::filesystem::path& path) { return path.native(); }

size_t LastSeparator(const std::string& path) { return path.rfind('/'); }

}  // namespace dsv4
