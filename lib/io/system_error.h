// SPDX-License-Identifier: Apache-2.0
// Converts failed system calls on files to statuses.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// `error`: the system's number of it (SystemReason). Returns NotFound if the file does not exist,
// OutOfHostMemory if the system has no memory for the call, otherwise IoError "PATH: cannot ACTION:
// REASON".
absl::Status SystemError(const std::string& path, absl::string_view action, int error);

enum class SystemErrorKind { kNotFound, kNoMemory, kOther };
SystemErrorKind KindOf(int error);

}  // namespace dsv4
