// SPDX-License-Identifier: Apache-2.0
// Git LFS: a clone made without it has a small text file in place of each large file.
#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// Completes "FILE: is ", and what a message may advise.
inline constexpr char kGitLfsPointer[] =
    "a git-lfs pointer, not the file itself; `git lfs pull` fetches it";

inline bool IsGitLfsPointer(absl::string_view content) {
  return absl::StartsWith(content, "version https://git-lfs.github.com/spec/");
}

}  // namespace dsv4
