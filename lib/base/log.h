// SPDX-License-Identifier: Apache-2.0
// The process-wide log: one callback, set through include/dsv4/log.h; silent without one.
#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// The values of dsv4_log_level.
enum class LogLevel : int32_t { kError = 1, kWarning = 2, kInfo = 3 };

// `message` is one line, NUL-terminated, and lives during the call. Must not set the callback.
using LogCallback = void (*)(void* user, LogLevel level, const char* message);

// Sets the callback for messages up to `level`; null silences. Returns once no call of the callback
// set before is running.
void SetLogCallback(LogCallback callback, void* user, LogLevel level);

// Whether a message of this level would reach a callback.
bool LogEnabled(LogLevel level);

// Hands `line` to the callback; line breaks become spaces.
void LogLine(LogLevel level, absl::string_view line);

// Log(LogLevel::kInfo, path, ": ", count, " tensors"). Formats nothing while silent.
template <class... Args>
void Log(LogLevel level, const Args&... args) {
  if (LogEnabled(level)) LogLine(level, absl::StrCat(args...));
}

}  // namespace dsv4
