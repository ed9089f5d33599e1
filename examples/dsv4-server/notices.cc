// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/notices.h"

#include "examples/dsv4-server/log.h"

namespace server {
namespace {

constexpr size_t kMostNotices = 100, kLongest = 200;

}  // namespace

void Notices::Say(const std::string& text) {
  const std::string line = text.substr(0, kLongest);
  const std::lock_guard lock(mutex_);
  if (said_.size() >= kMostNotices || !said_.insert(line).second) return;
  Log(line + (said_.size() == kMostNotices ? " (further notices are not logged)" : ""));
}

}  // namespace server
