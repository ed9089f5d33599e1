// SPDX-License-Identifier: Apache-2.0
// include/dsv4/log.h.
#include <dsv4/log.h>

#include "lib/base/log.h"
#include "lib/base/mutex.h"

namespace {

// The public callback, behind one of the library's own signature. Written only while no callback is
// set, so that a logging thread never sees half of it.
struct Target {
  dsv4_log_fn callback = nullptr;
  void* user = nullptr;
};
dsv4::Mutex target_mutex;
constinit Target target ABSL_GUARDED_BY(target_mutex);

void Forward(void* user, dsv4::LogLevel level, const char* message) {
  const auto* to = static_cast<const Target*>(user);
  to->callback(to->user, static_cast<dsv4_log_level>(level), message);
}

}  // namespace

void dsv4_log_set_callback(dsv4_log_fn callback, void* user, dsv4_log_level level) noexcept {
  const dsv4::MutexLock lock(&target_mutex);
  dsv4::SetLogCallback(nullptr, nullptr, dsv4::LogLevel::kError);
  target = {callback, user};
  if (callback != nullptr)
    dsv4::SetLogCallback(&Forward, &target, static_cast<dsv4::LogLevel>(level));
}
