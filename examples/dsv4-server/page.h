// SPDX-License-Identifier: Apache-2.0
// The page at /: a chat in the browser. It loads nothing but its own files, which are built in:
// those of page/, and the library marked, which reads Markdown.
#pragma once

#include <array>
#include <string_view>

namespace server {

struct PageFile {
  const char* path;  // of its endpoint
  const char* type;
  std::string_view text;
};

std::array<PageFile, 5> PageFiles();

// The content security policy: the page runs its own scripts, of which none makes elements of text,
// and calls this server.
extern const char kPagePolicy[];

}  // namespace server
