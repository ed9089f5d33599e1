// SPDX-License-Identifier: Apache-2.0
// What a failed system call on a file becomes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// `error` is the call's errno. NotFound when it says that the file does not exist, OutOfHostMemory
// when the system has no memory for the call, else IoError "PATH: cannot ACTION: REASON".
absl::Status SystemError(const std::string& path, absl::string_view action, int error);

}  // namespace dsv4
