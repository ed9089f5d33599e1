// SPDX-License-Identifier: Apache-2.0
// The callback and its lock: readers log, the one writer is SetLogCallback.
#include "lib/base/log.h"

#include <atomic>
#include <string>

#include "lib/base/mutex.h"
#include "lib/base/quoted.h"

namespace dsv4 {
namespace {

struct Sink {
  LogCallback callback = nullptr;
  void* user = nullptr;
};

// The highest level that is wanted, 0 while silent: lets a silent Log skip lock and formatting.
constinit std::atomic<int32_t> wanted_level{0};
SharedMutex sink_mutex;
constinit Sink sink ABSL_GUARDED_BY(sink_mutex);

}  // namespace

void SetLogCallback(LogCallback callback, void* user, LogLevel level) {
  const WriterMutexLock lock(&sink_mutex);
  sink = {callback, user};
  wanted_level.store(callback != nullptr ? static_cast<int32_t>(level) : 0,
                     std::memory_order_relaxed);
}

bool LogEnabled(LogLevel level) {
  return static_cast<int32_t>(level) <= wanted_level.load(std::memory_order_relaxed);
}

void LogLine(LogLevel level, absl::string_view line) {
  const std::string text = OneLine(line);
  const ReaderMutexLock lock(&sink_mutex);
  // The level may have changed since the caller asked.
  if (sink.callback != nullptr && LogEnabled(level)) sink.callback(sink.user, level, text.c_str());
}

}  // namespace dsv4
